"""Labels texts with a teacher at an address; `test_interruptions.py` kills it, or limits files."""

import resource
import signal
import sys
from pathlib import Path

from vanilla_transformer.distil.journal import Journal
from vanilla_transformer.distil.teachers import ChatTeacher, Server

if __name__ == "__main__":
    path, address, size = sys.argv[1:]
    if int(size):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    texts = [f"text {number}" for number in range(200)]
    teacher = ChatTeacher("m", "{text}", Server(f"{address}/v1", "", 60, 4))
    journal = Journal(Path(path), teacher, False, ())
    journal.ask(texts)
    Path(path).with_suffix(".tsv").write_text(
        "".join(f"{text}\t{journal.answers[text]}\n" for text in texts)
    )
