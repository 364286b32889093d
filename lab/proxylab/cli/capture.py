"""``proxylab capture``: print the frames that cross devices, write them to a file, or show them in Wireshark.

The tap never makes the device promiscuous: a promiscuous device accepts frames that it would otherwise drop, and
would hide the fault that the user is looking for.
"""

import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import click

from proxylab.binaries.commands import feeding, run_guarded
from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.durations import Duration
from proxylab.cli.interrupt import ending_on_interrupt
from proxylab.cli.netns_argument import check_netns, complete_netns
from proxylab.cli.options import Options, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.standard_streams import echo
from proxylab.client.connection import Connection
from proxylab.errors import CapabilityError, ExitCode, ScenarioError
from proxylab.evidence.evidence import Direction
from proxylab.protocol.standing_labs import CapturedFrame, Frames, Listen
from proxylab.report.pcapng import beginning, packet
from proxylab.scenario.network import UPLINK
from proxylab.timing import Deadline

_BEGIN_SECONDS: Final = 30.0
_COMPILE_SECONDS: Final = 10.0
_A_DAY: Final = 86400.0
_STEP: Final = struct.Struct("=HBBI")  # struct sock_filter (linux/filter.h)

Taker = Callable[[CapturedFrame], None]


def _compiled(ctx: click.Context, param: click.Parameter, expression: str) -> str:
    """The filter as a program for the kernel (``Listen.interest``). Only tcpdump and libpcap have its compiler.

    Raises:
        CapabilityError: tcpdump is not installed.
        click.BadParameter: tcpdump does not understand the filter.
    """
    if not expression:
        return ""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])  # where an ordinary user's may not look
    program = shutil.which("tcpdump", path=path)
    if program is None:
        raise CapabilityError("tcpdump, which compiles filters", "install it, or capture without --filter")
    argv = [program, "-y", "EN10MB", "-ddd", expression]
    try:
        done = run_guarded(argv, seconds=_COMPILE_SECONDS)
    except subprocess.SubprocessError as error:
        raise click.BadParameter(f"tcpdump does not compile it: {error}", ctx, param) from None
    if done.status != 0:
        said = done.errors.decode(errors="replace").strip().removeprefix("tcpdump: ")
        raise click.BadParameter(f"{said}; expected: an expression of pcap-filter(7)", ctx, param)
    steps = (map(int, line.split()) for line in done.output.splitlines()[1:])
    return b"".join(_STEP.pack(*each) for each in steps).hex()


class CaptureOptions(Options, frozen=True, kw_only=True):
    """Which frames to capture, and where they go."""

    write: Annotated[
        Path | None,
        option(
            "-w",
            "--write",
            metavar="FILE",
            type=OutputFile(allow_dash=True),
            help="Write pcapng to FILE, or to standard output for '-'.",
        ),
    ]
    wireshark: Annotated[bool, option("--wireshark", is_flag=True, help="Show the frames live in Wireshark.")]
    count: Annotated[
        int | None, option("-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N frames.")
    ]
    seconds: Annotated[
        float | None, option("--seconds", type=Duration(), metavar="TIME", help="Stop after this time: 5s, 2m.")
    ]
    expression: Annotated[
        str,
        option(
            "--filter",
            metavar="EXPRESSION",
            default="",
            callback=_compiled,
            help="Keep only frames that tcpdump's filter accepts, such as 'tcp port 80'.",
        ),
    ]


@click.command("capture", short_help="Capture frames as text, as pcapng or in Wireshark.")
@takes
def command(
    *,
    frames: CaptureOptions,
    words: Annotated[tuple[str, ...], lab_words("[FILE] NODE|POD|HOST[:DEVICE]…", complete_netns)],
    options: LabOptions,
) -> ExitCode:
    """Show the frames that cross devices of nodes, pods or hosts in the standing lab, until Ctrl-C.

    DEVICE is eth0 by default; any stands for every device. No device becomes promiscuous. With several devices, each
    line begins with the frame's own; a pcapng file names them, too.

    Example: proxylab capture client:eth0 node-a:any --filter 'tcp port 80' --seconds 1s
    """
    chosen = ChosenLab(words, options)
    if not chosen.words:
        raise click.UsageError("NODE|POD|HOST: name one, with its device after a colon, as in node-a:eth0")
    if frames.write is not None and frames.wireshark:
        raise click.UsageError("choose -w or --wireshark, not both")
    devices = [
        (netns_name, device or UPLINK) for netns_name, _, device in (each.partition(":") for each in chosen.words)
    ]
    with chosen.opened() as lab, _output(frames.write, frames.wireshark) as stream:
        for netns_name, _ in devices:
            check_netns(lab.scenario, netns_name)
        request = Listen(
            devices=tuple(dict.fromkeys(devices)),
            interest=frames.expression,
            seconds=frames.seconds,
            count=frames.count,
            in_words=stream is None,
        )
        try:
            received, lost = _listen(lab.connection, request, stream)
        except ScenarioError as error:
            raise click.UsageError(f"DEVICE: {error}") from None
    echo(f"{received} frames{f', {lost} lost because the buffer was full' if lost else ''}", err=True)
    return ExitCode.OK


def _listen(connection: Connection, request: Listen, stream: BinaryIO | None) -> tuple[int, int]:
    """Pass on every frame; return the numbers of frames received and lost."""
    frames = lost = 0
    connection.begin_feed(request, Deadline.after(_BEGIN_SECONDS))
    with ending_on_interrupt(connection):
        first = connection.next_answer(Deadline.after(_BEGIN_SECONDS))
        taps = first.taps if isinstance(first, Frames) else ()
        echo(f"listening on {', '.join(f'{name}:{device}' for name, device in taps)}", err=True)
        take = _printer(taps) if stream is None else _writer(stream, taps)
        while isinstance(heard := connection.next_answer(Deadline.after(_A_DAY)), Frames):
            for each in heard.frames:
                try:
                    take(each)
                except BrokenPipeError:  # the user closed Wireshark, or the reader of the pipe
                    return frames, lost
                frames += 1
            lost += heard.lost
    return frames, lost


@contextmanager
def _output(write: Path | None, wireshark: bool) -> Iterator[BinaryIO | None]:
    """Where the frames go; ``None`` to print them."""
    if wireshark:
        with _wireshark() as stream:
            yield stream
    elif write is None:
        yield None
    elif str(write) == "-":
        yield sys.stdout.buffer
    else:
        try:
            stream = write.open("wb")
        except OSError as error:
            raise click.UsageError(f"--write: cannot write {write}: {error.strerror}; name another file") from None
        with stream:
            yield stream


def _printer(taps: Sequence[tuple[str, str]]) -> Taker:
    names = [f"{netns_name}:{device}" for netns_name, device in taps]
    room = max(map(len, names), default=0)

    def take(frame: CapturedFrame) -> None:
        echo(frame_text(frame, names[frame.tap].ljust(room) if len(names) > 1 else ""))

    return take


def frame_text(frame: CapturedFrame, device: str = "") -> str:
    """A frame in one line: time, device, direction and content."""
    at = datetime.fromtimestamp(frame.at // 1_000_000_000).astimezone()
    way = "out" if frame.outgoing else "in "
    micros = frame.at // 1000 % 1_000_000
    return " ".join(filter(None, [f"{at:%H:%M:%S}.{micros:06}", device, way, frame.words]))


def _writer(stream: BinaryIO, taps: Sequence[tuple[str, str]]) -> Taker:
    def write(data: bytes) -> None:
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.UsageError(f"cannot write frames: {error.strerror}; name another file") from None

    def take(frame: CapturedFrame) -> None:
        way = Direction.OUT if frame.outgoing else Direction.IN
        write(packet(bytes.fromhex(frame.data), frame.at, way, tap=frame.tap))

    with suppress(BrokenPipeError):  # the first frame meets the same error and ends the capture
        write(beginning(taps))
    return take


@contextmanager
def _wireshark() -> Iterator[BinaryIO]:
    program = shutil.which("wireshark")
    if program is None:
        raise CapabilityError("wireshark", "install it, or write a file with -w and open that on a machine that has it")
    with feeding((program, "-k", "-i", "-")) as shown:
        if shown.stdin is None:
            raise CapabilityError("a pipe to wireshark", "write a file with -w")
        yield shown.stdin  # type: ignore[misc]  # IO[bytes] of Popen is a BinaryIO
