"""Runs the graphs of an export on onnxruntime: logits of given targets, and greedy search."""

import torch


class OnnxGraphs:
    """The encoder and the decoder of an exported directory."""

    def __init__(self, folder):
        import onnxruntime  # the extra `onnx`

        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(next((folder / "onnx").glob(f"{name}*.onnx")))
            for name in ("encoder_model", "decoder_model_merged")
        )

    def encode(self, input_ids, attention_mask):
        feeds = {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()}
        (states,) = self.encoder.run(None, feeds)
        return {
            "encoder_hidden_states": states,
            "encoder_attention_mask": attention_mask.numpy(),
        }

    def empty_cache(self, rows):
        shapes = {entry.name: entry.shape for entry in self.decoder.get_inputs()}
        return {
            name: torch.zeros(rows, shape[1], 0, shape[3]).numpy()
            for name, shape in shapes.items()
            if name.startswith("past")
        }

    def step(self, ids, encoded, past):
        """Returns the logits of target tokens, and the cache after them."""
        feeds = {"input_ids": ids.numpy(), **encoded, **past}
        known = {entry.name for entry in self.decoder.get_inputs()}
        names = [entry.name for entry in self.decoder.get_outputs()]
        found = self.decoder.run(names, {name: feeds[name] for name in known})
        present = dict(zip(names, found, strict=True))
        logits = torch.from_numpy(present.pop("logits"))
        return logits, {
            name.replace("present", "past_key_values"): value for name, value in present.items()
        }

    def logits(self, input_ids, attention_mask, decoder_input_ids):
        encoded = self.encode(input_ids, attention_mask)
        return self.step(decoder_input_ids, encoded, self.empty_cache(len(input_ids)))[0]

    def generate(self, config, max_new_tokens, input_ids, attention_mask=None):
        """Returns the greedy outputs, padded as transformers pads them."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        encoded, past = self.encode(input_ids, mask), self.empty_cache(len(input_ids))
        ids = torch.full((len(input_ids), 1), config.decoder_start_token_id)
        is_open = torch.ones(len(ids), dtype=torch.bool)
        while is_open.any() and ids.shape[1] <= max_new_tokens:
            logits, past = self.step(ids[:, -1:], encoded, past)
            best = logits[:, -1].argmax(-1).where(is_open, torch.tensor(config.pad_token_id))
            ids = torch.cat((ids, best[:, None]), 1)
            is_open &= best != config.eos_token_id
        return ids
