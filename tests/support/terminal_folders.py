"""Terminal task folders for tests."""

from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "terminal"
TASK_TOML = """\
schema_version = "1.1"
[agent]
timeout_sec = 300.0
[verifier]
timeout_sec = 45.0
[environment]
cpus = 2
memory_mb = 1024
storage_mb = 64
"""
DOCKERFILE = "FROM debian:12-slim\nWORKDIR /app\nCOPY . .\n"


def harbor(folder: Path, dockerfile: str = DOCKERFILE, **files: str) -> Path:
    """A task of Harbor's layout; ``files``: path with ``__`` for ``/`` and ``_dot_`` for ``.`` → text."""
    texts = {
        "task.toml": TASK_TOML,
        "instruction.md": "Write hello to /app/out.txt.\n",
        "environment/Dockerfile": dockerfile,
        "environment/data/words.txt": "hello\n",
        "tests/test.sh": '#!/bin/sh\nread -r word < /app/out.txt && [ "$word" = hello ]\n',
        "solution/solve.sh": "#!/bin/sh\ncp /app/data/words.txt /app/out.txt\n",
    }
    _write(folder, {**texts, **{_path(name): text for name, text in files.items()}})
    return folder


def terminal_bench(folder: Path, **files: str) -> Path:
    """A task of Terminal-Bench's own layout."""
    texts = {
        "task.yaml": "instruction: |\n  Write hello to /app/out.txt.\nmax_agent_timeout_sec: 120\nmax_test_timeout_sec: 30\n",
        "docker-compose.yaml": (
            "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n    command: [sh, -c, sleep infinity]\n"
            "    environment:\n      - TEST_DIR=${T_BENCH_TEST_DIR}\n      - WORD=hello\n"
            "    volumes:\n      - ${T_BENCH_TASK_LOGS_PATH}:${T_BENCH_CONTAINER_LOGS_PATH}\n"
        ),
        "Dockerfile": "FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:20250624\nWORKDIR /app\nCOPY words.txt /app/words.txt\n",
        "words.txt": "hello\n",
        "run-tests.sh": "#!/bin/bash\nexec python3 $TEST_DIR/test_outputs.py\n",
        "tests/test_outputs.py": "import os\nassert open('/app/out.txt').read().strip() == os.environ['WORD']\n",
        "solution.sh": "#!/bin/bash\ncp words.txt out.txt\n",
    }
    _write(folder, {**texts, **{_path(name): text for name, text in files.items()}})
    return folder


def _path(name: str) -> str:
    return name.replace("__", "/").replace("_dot_", ".")


def _write(folder: Path, texts: dict[str, str]) -> None:
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
