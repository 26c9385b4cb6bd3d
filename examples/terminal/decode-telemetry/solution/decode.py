"""capture.bin → readings.csv, lost.txt"""

import struct
import zlib
from pathlib import Path

APP = Path("/app")
MARK, BODY = b"\xa5\x5a", struct.Struct("<HIhHB")
FLAGS = {1: "rain", 2: "frost", 4: "battery", 8: "door"}
WRAP = 1 << 16


def frames(data):
    """The bodies of all good frames, as they come."""
    at = data.find(MARK)
    while at >= 0:
        body = data[at + 2 : at + 2 + BODY.size]
        checksum = data[at + 2 + BODY.size : at + 6 + BODY.size]
        good = len(checksum) == 4 and struct.unpack("<I", checksum)[0] == zlib.crc32(body)
        if good:
            yield BODY.unpack(body)
        at = data.find(MARK, at + (BODY.size + 6 if good else 1))


def line(sequence, seconds, celsius, pressure, flags):
    """One reading."""
    names = "+".join(name for bit, name in FLAGS.items() if flags & bit)
    return f"{sequence},{seconds},{celsius / 100:.2f},{pressure / 10:.1f},{names}"


found = list(frames((APP / "capture.bin").read_bytes()))
first = found[0][0]
readings = {(frame[0] - first) % WRAP: frame for frame in found}
order = sorted(readings)
lines = ["sequence,seconds,celsius,hectopascal,flags", *(line(*readings[place]) for place in order)]
(APP / "readings.csv").write_text("\n".join(lines) + "\n")
lost = [str((first + place) % WRAP) for place in range(order[-1]) if place not in readings]
(APP / "lost.txt").write_text("\n".join(lost) + "\n")
