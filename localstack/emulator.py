"""The emulator that `up` starts and `down` stops, in a Python of its own under target/."""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
FOLDER = ROOT / "target" / "localstack"
VENV = FOLDER / "venv"
# What is running, for `down` and the next `up`.
NOTE = FOLDER / "running.json"
PORT_FIRST = 4566
READY_SECONDS = 60


class Failed(Exception):
    """What a person can act on; printed without a trace."""


def enter(say):
    """Goes on in the Python that has what `requirements.txt` names; makes it when there is none."""
    if pathlib.Path(sys.prefix).resolve() == VENV.resolve():
        return
    wanted = (HERE / "requirements.txt").read_text()
    mark = VENV / "installed.txt"
    if not mark.is_file() or mark.read_text() != wanted:
        say("installing the emulator and boto3 under target/")
        shutil.rmtree(VENV, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(VENV)], "make a Python environment (on Debian: install python3-venv)")
        pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run([*pip, "--requirement", str(HERE / "requirements.txt")], "install what requirements.txt names")
        mark.write_text(wanted)
    sys.stdout.flush()
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), *sys.argv])


def run(command, purpose, **options):
    """Runs a command whose output is for people."""
    try:
        code = subprocess.run(command, stdout=sys.stderr, **options).returncode
    except FileNotFoundError:
        raise Failed(f"could not {purpose}: there is no `{command[0]}`") from None
    if code:
        raise Failed(f"could not {purpose}: `{' '.join(command)}` ended with {code}")


def output(command, purpose):
    """What a command prints."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    except FileNotFoundError:
        raise Failed(f"could not {purpose}: there is no `{command[0]}`") from None
    except subprocess.CalledProcessError as error:
        raise Failed(f"could not {purpose}: `{' '.join(command)}` ended with {error.returncode}") from None
    return done.stdout


def start(port=None):
    """Starts an emulator with nothing in it; answers its endpoint."""
    stop()
    port = port or free_port()
    data = FOLDER / "data"
    shutil.rmtree(data, ignore_errors=True)
    (data / "tmp").mkdir(parents=True)
    log = data / "emulator.log"
    # AUTH: roles are enforced, as on AWS. Nothing is kept: every `up` begins with nothing.
    settings = {
        "AUTH": "true",
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",
        "PERSIST_STATE": "0",
        "S3_DATA_DIR": str(data / "s3"),
        "S3_PERSIST": "0",
        "SFTP_ENABLED": "0",
        "STATE_DIR": str(data / "state"),
        "TMPDIR": str(data / "tmp"),
    }
    # Functions inherit these, so there is nothing of the caller's AWS account or settings in there.
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    with log.open("w") as out:
        process = subprocess.Popen(
            [str(VENV / "bin" / "ministack")], env={**environment, **settings}, cwd=data,
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )
    endpoint = f"http://127.0.0.1:{port}"
    note(pid=process.pid, started=birth(process.pid), endpoint=endpoint)
    until = time.monotonic() + READY_SECONDS
    while not is_ministack(endpoint):
        if process.poll() is not None or time.monotonic() > until:
            raise Failed(f"the emulator does not come up; its log is {log.relative_to(ROOT)}")
        time.sleep(0.2)
    return endpoint


def is_ministack(endpoint):
    try:
        with urllib.request.urlopen(f"{endpoint}/_ministack/health", timeout=5) as answer:
            return answer.status == 200
    except (OSError, urllib.error.URLError):
        return False


def free_port():
    for port in range(PORT_FIRST, PORT_FIRST + 100):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Failed(f"no port from {PORT_FIRST} on is free")


def note(**what):
    FOLDER.mkdir(parents=True, exist_ok=True)
    NOTE.write_text(json.dumps(what))


def noted():
    """What the last `up` left running."""
    return json.loads(NOTE.read_text()) if NOTE.is_file() else {}


def stop():
    """Stops the emulator that we started, and with it the functions; says whether there was one."""
    running = noted()
    pid = running.get("pid")
    # A number is given again: only the process that we noted is ours.
    if not pid or birth(pid) is None or birth(pid) != running.get("started"):
        return False
    group(pid, signal.SIGTERM)
    until = time.monotonic() + 10
    while birth(pid) == running["started"] and time.monotonic() < until:
        time.sleep(0.1)
    group(pid, signal.SIGKILL)
    NOTE.unlink()
    return True


def group(pid, what):
    try:
        os.killpg(pid, what)
    except ProcessLookupError:
        pass


def birth(pid):
    """When a process was born, as its system tells it; nothing when there is no such process."""
    told = subprocess.run(["ps", "-o", "lstart=,stat=", "-p", str(pid)], capture_output=True, text=True).stdout.split()
    return " ".join(told[:-1]) if told and not told[-1].startswith("Z") else None
