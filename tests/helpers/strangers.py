"""A user of a saved model who does not have the package."""

import json

import programs

WITHOUT_THE_PACKAGE = """
import importlib.abc, sys

class NotInstalled(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "vanilla_transformer":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
try:
    import vanilla_transformer
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("the package is importable here: the test would prove nothing")

import json, torch
torch.set_num_threads(1)
"""
STRANGER = """
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

directory, again, ids = sys.argv[1], sys.argv[2], torch.tensor(json.loads(sys.argv[3]))
config = AutoConfig.from_pretrained(directory, trust_remote_code=True)
model = AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True)
bare = AutoModel.from_pretrained(directory, trust_remote_code=True)
tokens = model.generate(ids, max_new_tokens=6)
hidden = bare(ids, decoder_input_ids=tokens[:, :2]).last_hidden_state
model.save_pretrained(again)
modules = [type(x).__module__ for x in (config, model, bare)]
assert all(name.startswith("transformers_modules.") for name in modules), modules
assert "vanilla_transformer" not in sys.modules
print(json.dumps({"tokens": tokens.tolist(), "hidden": hidden.sum().item()}))
"""


def run_stranger(directory, again, ids, tmp_path, program=STRANGER):
    """Loads, generates and saves in a process that cannot import the package."""
    (tmp_path / "empty").mkdir(exist_ok=True)
    file = tmp_path / "empty" / "stranger.py"
    file.write_text(WITHOUT_THE_PACKAGE + program, encoding="utf-8")
    result = programs.run(
        *(file, directory, again, json.dumps(ids)),
        cwd=tmp_path / "empty",
        environment={"HF_MODULES_CACHE": str(tmp_path / f"modules_{again.name}")},
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])
