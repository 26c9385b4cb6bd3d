"""What a sandbox without a control group uses, seen at its processes."""

import os
import subprocess
import sys

from longstride.sandbox.meter import TreeMeter, descendants

BUSY = """
import subprocess, sys, time
held = bytearray(40 << 20)
child = subprocess.Popen([sys.executable, "-c", "import time; held = bytearray(30 << 20); print(flush=True); time.sleep(60)"])
until = time.process_time() + 0.3
while time.process_time() < until: pass
print("ready", flush=True)
time.sleep(60)
"""


def test_a_tree_is_counted_with_its_children() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert sorted([process.stdout.readline(), process.stdout.readline()]) == ["\n", "ready\n"]
            assert len(descendants(process.pid)) == 2
            meter = TreeMeter()
            meter.look(process.pid)
            assert 70 << 20 < meter.memory_bytes < 120 << 20
            assert 0.3 <= meter.cpu_s < 5
        finally:
            for pid in reversed(descendants(process.pid)):
                os.kill(pid, 9)


HIDDEN = """
import mmap, os, threading, time
shared = mmap.mmap(-1, 40 << 20)
shared.write(b"x" * len(shared))
def fork():
    if os.fork() == 0:
        until = time.process_time() + 0.3
        while time.process_time() < until: pass
        print("ready", flush=True)
        time.sleep(60)
    time.sleep(60)
threading.Thread(target=fork).start()
"""


def test_what_a_thread_starts_and_what_is_shared_is_counted_once() -> None:
    with subprocess.Popen([sys.executable, "-c", HIDDEN], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            assert len(descendants(process.pid)) == 2
            meter = TreeMeter()
            meter.look(process.pid)
            assert 40 << 20 < meter.memory_bytes < 80 << 20
            assert 0.3 <= meter.cpu_s < 5
        finally:
            for pid in reversed(descendants(process.pid)):
                os.kill(pid, 9)


def test_readings_of_the_dead_change_nothing() -> None:
    meter = TreeMeter(cpu_s=1.5, peak_memory_bytes=7)
    meter.look(None)
    gone = subprocess.Popen(["true"])
    gone.wait()
    meter.look(gone.pid)
    assert (meter.cpu_s, meter.peak_memory_bytes, meter.memory_bytes) == (1.5, 7, 0)
