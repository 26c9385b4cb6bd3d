"""A small process that stands in for an embedded stack, and keeps its side of the contract."""

STACK = """
import fcntl, json, os, signal, sys, time
home = sys.argv[sys.argv.index("--home") + 1]
deadline = time.monotonic() + 60
while "LOADED" in os.environ and not os.path.exists(os.environ["LOADED"]) and time.monotonic() < deadline:
    time.sleep(0.01)
lock = open(home + "/stack.lock", "a")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("another stack runs here")
lock.truncate(0)
lock.write(str(os.getpid()))
lock.flush()
os.close(int(sys.argv[sys.argv.index("--start-lock") + 1]))
with open(home + "/starts", "a") as starts:
    starts.write("x")
sys.stderr.write("noise\\nlongstride: laying bricks\\nmore noise\\n")
sys.stderr.flush()
time.sleep(float(os.environ.get("SLOW", "0")))
if os.environ.get("BROKEN"):
    sys.exit("no room on the disk\\nfree some")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
where = {"pid": os.getpid(), "database_url": "postgresql:///x", "artifacts": home + "/artifacts",
         "started_at": "2026-01-31T12:00:00Z", "incarnation": "i", "version": "0"}
with open(home + "/stack.json.new", "w") as out:
    json.dump(where, out)
os.replace(home + "/stack.json.new", home + "/stack.json")
while True:
    time.sleep(0.05)
"""
"""A program for ``python -c … --home DIR``; ``SLOW`` and ``BROKEN`` of its environment say how it starts, and
``LOADED`` names the file that it waits for first, as if for its programs."""
