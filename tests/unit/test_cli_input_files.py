"""Files of this machine as a task's inputs."""

from pathlib import Path

import pytest

from longstride.client.errors import UsageProblem
from longstride.client.input_files import InputFiles
from longstride.contracts.v1.input_file import InputFile
from longstride.storage.memory import MemoryArtifacts


def stored(most_mb: int = 1) -> tuple[MemoryArtifacts, InputFiles]:
    artifacts = MemoryArtifacts()
    return artifacts, InputFiles(artifacts, "session_1", most_mb)


def test_small_text_goes_inside_the_message(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x" * 1024)
    assert stored()[1].of([str(file)]) == (InputFile(path="a.csv", text="x" * 1024),)


@pytest.mark.parametrize("data", [b"x" * 1025, b"\x00", b"\xff\xfe", "é".encode("latin-1")])
def test_long_text_and_binary_go_to_the_artifact_store(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(data)
    artifacts, inputs = stored()
    (sent,) = inputs.of([str(file)])
    assert sent.text is None
    assert sent.ref is not None
    assert artifacts.get(sent.ref) == data
    assert sent.ref.key.startswith("session_1/input/")


def test_the_workspace_path_follows_a_colon(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("x")
    (tmp_path / "b:c").write_text("y")
    assert [f.path for f in stored()[1].of([f"{file}:data/b.csv", str(tmp_path / "b:c")])] == ["data/b.csv", "b:c"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere.csv"], "'nowhere.csv' does not exist"),
        (["."], "is not a file"),
        (["x" * 300], "does not exist"),
        (["a.csv", "a.csv"], "two files would be 'a.csv'"),
        (["a.csv:a", "b.bin:a/b"], "'a' would be a file and the folder of 'a/b'"),
        (["b.bin:a/b/c", "a.csv:./a/"], "'a' would be a file and the folder of 'a/b/c'"),
        (["a.csv:" + 200 * "é"], "has a name of more than 255 bytes"),
        (["a.csv:../b"], "without '..'"),
        (["a.csv:/etc/passwd"], "relative path"),
        (["huge.bin"], "a workspace holds 1 MiB"),
    ],
)
def test_what_cannot_be_an_input_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.csv").write_text("x")
    Path("b.bin").write_bytes(b"\x00")
    with Path("huge.bin").open("wb") as sparse:
        sparse.truncate(2 * 1024**2)
    artifacts, inputs = stored()
    with pytest.raises(UsageProblem, match=told):
        inputs.of(arguments)
    assert list(artifacts.list()) == []


@pytest.mark.parametrize(("data", "told"), [(b"\x00", "is binary"), (b"x" * 40_000, "is 40,000 bytes")])
def test_without_a_store_large_and_binary_files_say_what_to_set(tmp_path: Path, data: bytes, told: str) -> None:
    file = tmp_path / "a"
    file.write_bytes(data)
    with pytest.raises(UsageProblem, match=rf"{told} and needs an artifact store: set LONGSTRIDE_S3_ENDPOINT"):
        InputFiles(None, "session_1", 1).of([str(file)])


def test_without_a_store_text_of_some_size_still_goes_inside(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x" * 30_000)
    assert InputFiles(None, "session_1", 1).of([str(file)])[0].text == "x" * 30_000


def test_a_session_that_cannot_be_part_of_a_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"\x00")
    with pytest.raises(UsageProblem, match="cannot be part of an artifact's key"):
        InputFiles(MemoryArtifacts(), "a/b", 1).of([str(file)])
