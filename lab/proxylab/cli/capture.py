"""``proxylab capture``: print the frames that cross a device, write them to a file, or show them in Wireshark.

The tap never makes the device promiscuous: a promiscuous device accepts frames that it would otherwise drop, and
would hide the fault that the user is looking for.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import click

from proxylab.cli.chosen_lab import ChosenLab, in_lab
from proxylab.cli.durations import Duration
from proxylab.cli.interrupt import ending_on_interrupt
from proxylab.cli.netns_argument import check_netns, complete_netns
from proxylab.client.connection import Connection
from proxylab.errors import CapabilityError, ExitCode, ScenarioError
from proxylab.evidence.evidence import Direction
from proxylab.protocol.standing_labs import CapturedFrame, Frames, Listen
from proxylab.report.pcapng import beginning, packet
from proxylab.scenario.network import UPLINK
from proxylab.timing import Deadline

__all__ = ["command", "frame_text"]

_BEGIN_SECONDS: Final = 30.0
_A_DAY: Final = 86400.0

Taker = Callable[[CapturedFrame], None]


@click.command("capture", short_help="Capture frames as text, as pcapng or in Wireshark.")
@click.option("-w", "--write", metavar="FILE", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
              help="Write pcapng to FILE, or to standard output for '-'.")  # fmt: skip
@click.option("--wireshark", is_flag=True, help="Show the frames live in Wireshark.")
@click.option("-c", "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N frames.")
@click.option("--seconds", type=Duration(), metavar="TIME", help="Stop after this time: 5s, 2m.")
@in_lab("[FILE] NODE|POD|HOST[:DEVICE]", complete_netns)
def command(
    chosen: ChosenLab,
    /,
    *,
    write: Path | None,
    wireshark: bool,
    count: int | None,
    seconds: float | None,
) -> ExitCode:
    """Show the frames that cross a device of a node, pod or host in the standing lab, until Ctrl-C.

    DEVICE is eth0 by default. The device does not become promiscuous.

    Example: proxylab capture client:eth0 --seconds 1s
    """
    if len(chosen.words) != 1:
        raise click.UsageError("NODE|POD|HOST: name one, with its device after a colon, as in node-a:eth0")
    if write is not None and wireshark:
        raise click.UsageError("choose -w or --wireshark, not both")
    netns_name, _, device = chosen.words[0].partition(":")
    device = device or UPLINK
    with chosen.opened() as lab, _taker(netns_name, device, write, wireshark) as take:
        check_netns(lab.scenario, netns_name)
        in_words = write is None and not wireshark
        request = Listen(netns_name=netns_name, device=device, seconds=seconds, count=count, in_words=in_words)
        try:
            frames, lost = _listen(lab.connection, request, take)
        except ScenarioError as error:
            raise click.UsageError(f"DEVICE: {error}") from None
    click.echo(f"{frames} frames{f', {lost} lost because the buffer was full' if lost else ''}", err=True)
    return ExitCode.OK


def _listen(connection: Connection, request: Listen, take: Taker) -> tuple[int, int]:
    """Pass every frame to ``take``; return the numbers of frames received and lost."""
    frames = lost = 0
    connection.begin_feed(request, Deadline.after(_BEGIN_SECONDS))
    with ending_on_interrupt(connection):
        first = connection.next_answer(Deadline.after(_BEGIN_SECONDS))
        if isinstance(first, Frames):
            click.echo(f"listening on {request.netns_name}:{request.device}", err=True)
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
def _taker(netns_name: str, device: str, write: Path | None, wireshark: bool) -> Iterator[Taker]:
    """The function that receives each frame."""
    if wireshark:
        with _wireshark() as stream:
            yield _writer(stream, netns_name, device)
    elif write is None:
        yield _print
    elif str(write) == "-":
        yield _writer(sys.stdout.buffer, netns_name, device)
    else:
        try:
            stream = write.open("wb")
        except OSError as error:
            raise click.UsageError(f"--write: cannot write {write}: {error.strerror}; name another file") from None
        with stream:
            yield _writer(stream, netns_name, device)


def _print(frame: CapturedFrame) -> None:
    click.echo(frame_text(frame))


def frame_text(frame: CapturedFrame) -> str:
    """A frame in one line: time, direction and content."""
    at = datetime.fromtimestamp(frame.at // 1_000_000_000).astimezone()
    way = "out" if frame.outgoing else "in "
    micros = frame.at // 1000 % 1_000_000
    return f"{at:%H:%M:%S}.{micros:06} {way} {frame.words}"


def _writer(stream: BinaryIO, netns_name: str, device: str) -> Taker:
    def write(data: bytes) -> None:
        try:
            stream.write(data)
            stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise click.UsageError(f"cannot write frames: {error.strerror}; name another file") from None

    def take(frame: CapturedFrame) -> None:
        write(packet(bytes.fromhex(frame.data), frame.at, Direction.OUT if frame.outgoing else Direction.IN))

    with suppress(BrokenPipeError):  # the first frame meets the same error and ends the capture
        write(beginning([(netns_name, device)]))
    return take


@contextmanager
def _wireshark() -> Iterator[BinaryIO]:
    program = shutil.which("wireshark")
    if program is None:
        raise CapabilityError("wireshark", "install it, or write a file with -w and open that on a machine that has it")
    shown = subprocess.Popen([program, "-k", "-i", "-"], stdin=subprocess.PIPE)
    if shown.stdin is None:
        raise CapabilityError("a pipe to wireshark", "write a file with -w")
    try:
        yield shown.stdin  # type: ignore[misc]  # IO[bytes] of Popen is a BinaryIO
    finally:
        with suppress(BrokenPipeError):
            shown.stdin.close()
        shown.wait()
