"""The system call filter, run by a BPF interpreter written from the kernel's documentation (filter.rst)."""

import errno
import struct

import pytest

pytest.importorskip("pyseccomp", reason="libseccomp is not installed", exc_type=RuntimeError)

from longstride.sandbox import seccomp

X86_64, I386, X32_BIT = 0xC000003E, 0x40000003, 0x40000000
ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

NUMBERS = {
    **{
        "read": 0,
        "mmap": 9,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "fcntl": 72,
        "clone": 56,
        "execve": 59,
        "ptrace": 101,
    },
    **{"mount": 165, "keyctl": 250, "unshare": 272, "perf_event_open": 298, "setns": 308, "bpf": 321},
    **{"userfaultfd": 323, "io_uring_setup": 425, "clone3": 435, "memfd_secret": 447, "fsopen": 430, "openat2": 437},
}
"""Of arch/x86/entry/syscalls/syscall_64.tbl."""


def verdict(number: int, *args: int, arch: int = X86_64) -> int:
    """What the kernel would do with a call."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *args, *([0] * (6 - len(args))))
    code = [struct.unpack_from("=HBBI", seccomp.program(), 8 * i) for i in range(len(seccomp.program()) // 8)]
    position, accumulator = 0, 0
    while True:
        operation, yes, no, k = code[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x05:
            position += k
        elif operation == 0x06:
            return int(k)
        else:
            tests = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}
            position += yes if tests[operation] else no


@pytest.mark.parametrize("name", ["read", "mmap", "execve", "openat2"])
def test_ordinary_calls_pass(name: str) -> None:
    assert verdict(NUMBERS[name]) == ALLOW


@pytest.mark.parametrize(
    "name", ["mount", "fsopen", "ptrace", "keyctl", "unshare", "setns", "perf_event_open", "bpf", "userfaultfd"]
)
def test_ways_around_the_namespaces_are_refused(name: str) -> None:
    assert verdict(NUMBERS[name]) == ERRNO | errno.EPERM


@pytest.mark.parametrize("name", ["clone3", "io_uring_setup", "memfd_secret"])
def test_calls_that_no_filter_can_see_through_do_not_exist(name: str) -> None:
    assert verdict(NUMBERS[name]) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("number", [452, 462, 467, 999, X32_BIT, X32_BIT + 41])
def test_calls_newer_than_the_list_do_not_exist(number: int) -> None:
    assert verdict(number) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("number", [11, 102, 21, 310])
def test_32_bit_calls_kill(number: int) -> None:
    assert verdict(number, arch=I386) == KILL_PROCESS


@pytest.mark.parametrize("flag", [0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000])
def test_clone_makes_no_namespace(flag: int) -> None:
    assert verdict(NUMBERS["clone"], flag | 17) == ERRNO | errno.EPERM


def test_clone_makes_processes_and_threads() -> None:
    assert verdict(NUMBERS["clone"], 17) == ALLOW
    assert verdict(NUMBERS["clone"], 0x003D0F00) == ALLOW, "glibc's flags for a thread"


@pytest.mark.parametrize("family", [1, 2, 10, 16])
def test_sockets_of_everyday_families_pass(family: int) -> None:
    assert verdict(NUMBERS["socket"], family, 1 | 0x80000) == ALLOW


@pytest.mark.parametrize("family", [0, 3, 9, 15, 17, 29, 38, 40, 44, 1 << 32, (1 << 32) | 40, 0xFFFFFFFF])
def test_other_families_do_not_exist(family: int) -> None:
    """17 is packet, 38 is alg, 40 is vsock, which no network namespace holds back."""
    assert verdict(NUMBERS["socket"], family, 1) == ERRNO | errno.EAFNOSUPPORT
    assert verdict(NUMBERS["socketpair"], family, 1) == ERRNO | errno.EAFNOSUPPORT


@pytest.mark.parametrize("family", [2, 10])
@pytest.mark.parametrize("kind", [3, 3 | 0x80000, 3 | 0x800, 10])
def test_raw_sockets_are_refused(family: int, kind: int) -> None:
    assert verdict(NUMBERS["socket"], family, kind) == ERRNO | errno.EPERM


@pytest.mark.parametrize("family", [2, 10])
@pytest.mark.parametrize("kind", [4, 5, 6, 5 | 0x80000])
def test_sockets_of_no_everyday_type_are_refused(family: int, kind: int) -> None:
    """Reliable datagrams, packets in sequence, DCCP."""
    assert verdict(NUMBERS["socket"], family, kind) == ERRNO | errno.EPERM


@pytest.mark.parametrize(("family", "passes"), [(2, {0, 1, 6, 17, 58}), (10, {0, 1, 6, 17, 58}), (16, {0, 15})])
def test_no_module_of_an_unusual_protocol_is_loaded(family: int, passes: set[int]) -> None:
    """33 is DCCP, 132 SCTP, 136 UDP-Lite, 262 MPTCP; of netlink 12 is nf_tables, 6 IPsec, 20 RDMA, 21 crypto."""
    for protocol in (*range(300), 1 << 16, 1 << 31, 1 << 32, (1 << 32) | 132, (1 << 64) - 1):
        expected = ALLOW if protocol in passes else ERRNO | errno.EPROTONOSUPPORT
        assert verdict(NUMBERS["socket"], family, 1, protocol) == expected, protocol


@pytest.mark.parametrize("command", [1024, 1040, (1 << 32) | 1024])
def test_leases_are_refused(command: int) -> None:
    assert verdict(NUMBERS["fcntl"], 3, command) == ERRNO | errno.EINVAL


@pytest.mark.parametrize("command", [1, 2, 3, 4, 6, 7, 1025, 1030, 1031, 1033])
def test_other_commands_on_descriptors_pass(command: int) -> None:
    assert verdict(NUMBERS["fcntl"], 3, command) == ALLOW


def test_netlink_is_raw_by_nature_and_passes() -> None:
    assert verdict(NUMBERS["socket"], 16, 3) == ALLOW


@pytest.mark.parametrize("request_", [0x5412, 0x541C, 0x1_0000_5412])
def test_characters_cannot_be_put_into_a_terminal(request_: int) -> None:
    assert verdict(NUMBERS["ioctl"], 0, request_) == ERRNO | errno.EPERM


def test_other_terminal_requests_pass() -> None:
    assert verdict(NUMBERS["ioctl"], 0, 0x5413) == ALLOW
