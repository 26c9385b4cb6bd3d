"""What the tools that Longstride comes with are called: known also where nothing is installed to carry them out."""

BUILTIN = (
    "shell",
    "python",
    "read_file",
    "write_file",
    "search_files",
    "submit",
    "noop",
    "delegate",
    "recall",
    "bash",
    "edit_file",
    "run_tests",
    "artifact_put",
    "artifact_get",
    "fetch_url",
    "install_packages",
    "process_start",
    "process_poll",
    "process_send",
    "process_stop",
)
"""In the order of the registry."""
