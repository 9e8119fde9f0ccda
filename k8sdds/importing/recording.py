"""Read which messages a recording of ROS 2 has: size and time of each one, never its content.

A recording is an MCAP file, an SQLite file of rosbag2, or a folder with several of them. Files, chunks and messages may
be compressed. MCAP is a sequence of records with a length. They are read here, because the readers on PyPI hold chunks
and messages in memory, of whatever length a file states.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import IO, Any, Protocol

import lz4.frame
import zstandard

from k8sdds.importing.recorded_topics import Topic
from k8sdds.importing.recorded_windows import Windows
from k8sdds.system.errors import InputError
from k8sdds.system.faults import naming
from k8sdds.system.files import natural
from k8sdds.system.reading import UnreadableError, escaped, one_line

SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")
MCAP, SQLITE, ZSTD, ROS_1 = b"\x89MCAP0\r\n", b"SQLite format 3\0", b"\x28\xb5\x2f\xfd", b"#ROSBAG V"
FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x02, 0x03, 0x04, 0x05, 0x06
"""Kinds of MCAP's records."""
MAX_TOPICS = 1000
MAX_EXPANSION = 1000
FREE_EXPANSION_BYTES = 1 << 30
"""A file may decompress to this size and to so many times its own."""
MAX_QOS_CHARACTERS = 8 << 20
MIN_QOS_CHARACTERS = 1000
"""Most characters of different QoS profiles that are parsed, which take 0.1 s per 10,000; each text counts as some."""
MAX_VALUE_BYTES = 1 << 28
"""Largest value that SQLite computes."""
MIN_ROW_BYTES = 4
"""A message in SQLite has at least this size in addition to its content."""
FRAME_HEADER_BYTES = 18
"""Largest header of a frame of Zstandard, which has the size of its content."""
MAX_TEXT_BYTES = 1 << 20
"""Longest text of a record."""
MAX_WINDOW_BYTES = 1 << 27
"""Most memory of a decompressor."""
STEP_BYTES = 1 << 20
"""Most bytes that are read at once of what is skipped or copied."""
JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""Begin of a journal with changes that SQLite would undo. It could then delete a file that the journal names."""

Progress = Callable[[int, int], None]
"""Receives how many bytes of a recording were read, and how many it has."""


class DamagedError(Exception):
    """A file contradicts its format."""


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Part:
    """A part of a stream, which is read once and forward."""

    def __init__(self, source: _Source, size: int) -> None:
        self._source = source
        self.left = size

    def read(self, size: int) -> bytes:
        """Return this number of bytes, or fewer at the end of the part."""
        size = min(size, self.left)
        data = self._source.read(size)
        if len(data) < size:
            raise DamagedError("it ends within a record: it is incomplete")
        self.left -= size
        return data

    def take(self, size: int) -> bytes:
        """Return exactly this number of bytes."""
        if size > self.left:
            raise DamagedError(f"{size:,} bytes should follow, but {self.left:,} do")
        return self.read(size)

    def integer(self, size: int) -> int:
        """Read an integer without sign."""
        return int.from_bytes(self.take(size), "little")

    def text(self) -> str:
        """Read a text after its length."""
        if (size := self.integer(4)) > MAX_TEXT_BYTES:
            raise DamagedError(f"a text has {size:,} bytes")
        return self.take(size).decode(errors="replace")

    def records(self) -> Iterator[tuple[int, Part]]:
        """Yield the kind and the content of each record of MCAP."""
        while self.left:
            kind, size = struct.unpack("<BQ", self.take(9))
            if size > self.left:
                raise DamagedError(f"a record of {size:,} bytes should follow, but {self.left:,} bytes do")
            record = Part(self, size)
            yield kind, record
            while record.left:
                record.read(STEP_BYTES)


class Lz4:
    """The content of a frame of LZ4."""

    def __init__(self, source: Part) -> None:
        self._content: Any = lz4.frame.open(source)

    def read(self, size: int, /) -> bytes:
        """Return at most this number of bytes."""
        try:
            data: bytes = self._content.read(size)
        except (RuntimeError, EOFError) as error:
            raise DamagedError(str(error)) from error
        return data


def zstd(source: Any) -> io.BufferedReader:
    """Return the content of a stream of Zstandard."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    content: Any = decompressor.stream_reader(source, read_across_frames=True, closefd=False)
    return io.BufferedReader(content)


class _Reader:
    """Reads the files of one recording."""

    def __init__(self, total: int, progress: Progress, windows: Mapping[str, Windows]) -> None:
        self._windows = windows
        self.topics: dict[str, Topic] = {}
        self._total, self._progress = total, progress
        self._done = 0
        """Size of the files that were read."""
        self._reported = 0
        self._offered: set[int] = set()
        """Hashes of the topics and their QoS profiles that were parsed."""
        self._qos_left = MAX_QOS_CHARACTERS
        self._expansion = MAX_EXPANSION * total + FREE_EXPANSION_BYTES

    def file(self, path: Path) -> None:
        """Read a file. Raises UnreadableError."""
        with naming(path), path.open("rb") as file:
            try:
                self._file(path, file)
            except (DamagedError, sqlite3.Error, zstandard.ZstdError) as error:
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CANTOPEN:
                    raise UnreadableError(
                        f"SQLite cannot open {escaped(path)}: {error}", "copy the recording to another folder"
                    ) from error
                where = f" after {file.tell():,} bytes" if file.tell() > STEP_BYTES else ""
                raise UnreadableError(
                    f"{escaped(path)} is damaged{where}: {one_line(str(error), 200)}",
                    "repair it (`mcap recover`, or `.recover` of sqlite3), copy it again, or name another recording",
                ) from error
            self._done += path.stat().st_size

    def _file(self, path: Path, file: io.BufferedReader) -> None:
        stream, size = file, path.stat().st_size
        if compressed := file.peek(4).startswith(ZSTD):
            stream, size = zstd(file), self._expansion
        head = stream.peek(16)
        if compressed and not head:
            raise DamagedError("it ends within its first block: it is incomplete")
        if head.startswith(MCAP):
            self._mcap(Part(stream, size), file)
        elif head.startswith(SQLITE) and compressed:
            with NamedTemporaryFile(suffix=".db3") as copy:
                while data := stream.read(STEP_BYTES):
                    self._expand(len(data))
                    copy.write(data)
                    self._report(file.tell())
                copy.flush()
                self._sqlite(Path(copy.name))
        elif head.startswith(SQLITE):
            self._sqlite(path)
        elif head.startswith(ROS_1):
            raise UnreadableError(
                f"{escaped(path)} is a recording of ROS 1",
                "convert it: rosbags-convert --src FILE --dst FOLDER",
            )
        else:
            raise UnreadableError(
                f"{escaped(path)} is not a recording: neither MCAP nor SQLite", "name a recording of rosbag2"
            )

    def _report(self, done: int) -> None:
        """Report how much of the current file was read."""
        if self._done + done - self._reported >= STEP_BYTES:
            self._reported = self._done + done
            self._progress(self._reported, self._total)

    def _expand(self, size: int) -> None:
        self._expansion -= size
        if self._expansion < 0:
            raise DamagedError(f"it decompresses to more than {MAX_EXPANSION} times its size")

    def _topic(self, name: str, type_: str, profiles: str) -> Topic:
        name = one_line(name, 100)
        if name not in self.topics and len(self.topics) == MAX_TOPICS:
            raise DamagedError(f"it has more than {MAX_TOPICS:,} topics")
        topic = self.topics.setdefault(
            name, Topic(name, one_line(type_, 100), windows=self._windows.get(name))
        )
        self._offer(topic, profiles)
        return topic

    def _offer(self, topic: Topic, profiles: str) -> None:
        """Read the QoS profiles of a topic once: chunks and files repeat them."""
        pair = hash((topic.name, profiles))
        if not profiles or pair in self._offered:
            return
        characters = max(len(profiles), MIN_QOS_CHARACTERS)
        if characters > self._qos_left:
            topic.is_qos_unreadable = True
            return
        self._qos_left -= characters
        self._offered.add(pair)
        topic.offer(profiles)

    # -- MCAP ---------------------------------------------------------------------------------------------

    def _mcap(self, stream: Part, file: IO[bytes]) -> None:
        types: dict[int, str] = {}
        channels: dict[int, Topic] = {}
        stream.take(len(MCAP))
        for kind, record in stream.records():
            if kind == FOOTER:
                return
            for each in self._chunk(record).records() if kind == CHUNK else [(kind, record)]:
                self._record(*each, types, channels)
            self._report(file.tell())
        raise DamagedError("it has no footer: the recorder was interrupted")

    def _chunk(self, record: Part) -> Part:
        _, _, size, _ = struct.unpack("<QQQI", record.take(28))
        compression = record.text()
        record.take(8)
        self._expand(size)
        match compression:
            case "":
                return Part(record, size)
            case "zstd":
                return Part(zstd(record), size)
            case "lz4":
                return Part(Lz4(record), size)
        raise DamagedError(f"the compression {compression!r} is unknown")

    def _record(self, kind: int, record: Part, types: dict[int, str], channels: dict[int, Topic]) -> None:
        if kind == MESSAGE:
            size = record.left - 22
            head = record.read(22 + FRAME_HEADER_BYTES)
            if size < 0 or (topic := channels.get(int.from_bytes(head[:2], "little"))) is None:
                raise DamagedError("a message belongs to no topic")
            topic.add(int.from_bytes(head[6:14], "little"), _content_size(head[22:], size))
        elif kind == SCHEMA:
            number, name = record.integer(2), record.text()
            types[number] = one_line(name, 100)
        elif kind == CHANNEL:
            number, schema = record.integer(2), record.integer(2)
            name, _ = record.text(), record.text()
            profiles, pairs = "", Part(record, record.integer(4))
            while pairs.left:
                key, value = pairs.text(), pairs.text()
                profiles = value if key == "offered_qos_profiles" else profiles
            channels[number] = self._topic(name, types.get(schema, ""), profiles)

    # -- SQLite -------------------------------------------------------------------------------------------

    def _sqlite(self, path: Path) -> None:
        path = path.resolve()
        journal, wal = (path.with_name(path.name + end) for end in ("-journal", "-wal"))
        if journal.exists() and _begins_with(journal, JOURNAL):
            raise DamagedError(f"the recorder was interrupted, and left {escaped(journal)}")
        if not (wal.exists() and (wal_size := wal.stat().st_size)):
            # Unlike `mode=ro` alone, this creates no files next to the database, whose folder can be read-only.
            self._database(path, path.stat().st_size, "&immutable=1")
            return
        with TemporaryDirectory() as folder:
            for file in (path, wal):
                shutil.copyfile(file, Path(folder) / file.name)
            self._database(Path(folder) / path.name, path.stat().st_size + wal_size)

    def _database(self, path: Path, size: int, options: str = "") -> None:
        with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{options}", uri=True)) as database:
            database.text_factory = lambda data: data.decode(errors="replace")
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            database.execute("PRAGMA trusted_schema = OFF")
            try:
                self._messages(database, self._topics(database), size)
            except UnicodeDecodeError as error:
                # Error messages of SQLite contain parts of the file.
                raise DamagedError("its schema is not text") from error

    def _topics(self, database: sqlite3.Connection) -> dict[Any, Topic]:
        found = database.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('messages', 'topics')"
        ).fetchone()
        if found != (2,):
            raise DamagedError("the tables of rosbag2 are missing")
        columns = [row[1] for row in database.execute("PRAGMA table_info(topics)")]
        profiles = "offered_qos_profiles" if "offered_qos_profiles" in columns else "''"
        return {
            number: self._topic(str(name), str(type_), str(offered or ""))
            for number, name, type_, offered in database.execute(
                f"SELECT id, substr(name, 1, 1000), substr(type, 1, 1000), {profiles} FROM topics"
            )
        }

    def _messages(self, database: sqlite3.Connection, topics: dict[Any, Topic], file_size: int) -> None:
        first = database.execute("SELECT substr(data, 1, 4) FROM messages LIMIT 1").fetchone()
        # SQLite takes the length of a blob from its header. The content of blobs is read only to find compressed sizes.
        head = f"CAST(substr(data, 1, {FRAME_HEADER_BYTES}) AS BLOB)" if first == (ZSTD,) else "x''"
        done = 0
        for topic, time_ns, size, start in database.execute(
            f"SELECT topic_id, timestamp, length(data), {head} FROM messages"
        ):
            if topic not in topics or not isinstance(time_ns, int) or not isinstance(size, int):
                raise DamagedError("a message belongs to no topic, or has no time")
            done += size + MIN_ROW_BYTES
            if done > file_size:
                raise DamagedError("it has more messages than bytes")
            topics[topic].add(time_ns, _content_size(start, size))
            self._report(done)


def _begins_with(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _content_size(start: bytes, size: int) -> int:
    """Return the size of a message, which a header states if the recorder compressed the message."""
    # Messages of ROS 2 begin with how they are encoded, which is never the magic number of Zstandard.
    if not start.startswith(ZSTD):
        return size
    content = int(zstandard.frame_content_size(start))
    if not 0 <= content <= MAX_EXPANSION * size + FREE_EXPANSION_BYTES:
        raise DamagedError("a compressed message does not state its size")
    return content


def read(
    path: Path, progress: Progress = lambda done, total: None, windows: Mapping[str, Windows] | None = None
) -> dict[str, Topic]:
    """Return the topics of a recording by name; `windows` receive the messages of theirs.

    Raises:
        OSError: A file cannot be read.
        InputError: The recording is missing, damaged, or something else.
    """
    files = _files(path)
    reader = _Reader(sum(file.stat().st_size for file in files), progress, windows or {})
    for file in files:
        reader.file(file)
    return reader.topics


def _files(path: Path) -> list[Path]:
    """Return the files of a recording in the order in which they were written."""
    remedy = f"name a file ({', '.join(SUFFIXES)}), or a folder of rosbag2"
    if not path.exists():
        raise InputError(f"the recording {escaped(path)} does not exist", remedy)
    files = [path]
    if path.is_dir():
        names = {file.name for file in path.iterdir() if file.name.endswith(SUFFIXES)}
        # A decompressed copy has the same messages.
        files = [path / name for name in names if name.removesuffix(".zstd") not in names - {name}]
        files.sort(key=natural)
    if not files or not all(file.is_file() for file in files):
        raise InputError(f"{escaped(path)} is not a recording, and has no files of one", remedy)
    return files
