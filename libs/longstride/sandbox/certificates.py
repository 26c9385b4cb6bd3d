"""The certificate authorities that sandboxed programs trust: those that this host trusts."""

import os
import ssl
from pathlib import Path

INSIDE = "/etc/ssl/certs/ca-certificates.crt"
"""Where every sandbox has them in one file, whatever the host's system calls it."""
ON_HOSTS = (
    INSIDE,  # Debian, Ubuntu, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine
)
VARIABLES = dict.fromkeys(("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"), INSIDE)
"""For programs that were built to look elsewhere."""


def bundle() -> bytes:
    """PEM. ``SSL_CERT_FILE`` of this process is the first choice: so an operator adds an authority of their own."""
    chosen = os.environ.get("SSL_CERT_FILE")
    found = [chosen] if chosen else [*ON_HOSTS, ssl.get_default_verify_paths().cafile or INSIDE]
    for path in map(Path, found):
        if path.is_file():
            return path.read_bytes()
    # certifi comes with httpx; a host without any authorities of its own is a small image.
    import certifi

    return Path(certifi.where()).read_bytes()
