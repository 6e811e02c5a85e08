"""The packages of npm with which a browser computes a model, and where they are; nothing heavy."""

from pathlib import Path

from vanilla_transformer.files.file_contents import read_object

RUNTIME = {
    "onnxruntime-web": (
        "1.30.0",
        ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"),
    ),
    "@huggingface/tokenizers": ("0.2.0", ("tokenizers.min.mjs",)),
}
"""The packages of the runtime, their versions, and the files of each that a folder needs."""

INSTALL = "npm install " + " ".join(f"{name}@{row[0]}" for name, row in RUNTIME.items())


def find_runtime(folder: str | None) -> Path:
    """Finds the folder `node_modules` with the runtime: a given one, or one near this place."""
    here = Path.cwd()
    places = [Path(folder)] if folder else [up / "node_modules" for up in (here, *here.parents)]
    found = next((place for place in places if (place / "onnxruntime-web").is_dir()), None)
    if found is None:
        raise FileNotFoundError(
            f"The runtime is not in {str(places[0])!r}: type `{INSTALL}`, then export again here, "
            "or name its node_modules with --runtime."
        )
    for name, (version, _) in RUNTIME.items():
        package = found / name / "package.json"
        has = read_object(package)["version"] if package.exists() else None
        if has != version:
            raise ValueError(
                f"{str(found)!r} has {name} {has or 'not at all'}, and {version} is needed: type "
                f"`{INSTALL}`."
            )
    return found
