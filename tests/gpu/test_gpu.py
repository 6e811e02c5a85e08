"""What runs on a GPU alone: recorded searches and steps, packed attention, other devices.

    python -m pytest tests/gpu

On a CPU, those tests that can run with a stand-in for recorded steps do so; the others are skipped.
"""

import gc
import threading

import pytest
import torch
from gpu_stand_ins import (
    StandInRecorder,
    pack_in_one_size,
    pretend_to_pack,
    pretend_to_record_searches,
)
from recorded_searches import SEARCHES, count_records, lively_model, plainly, source_batch
from tiny_models import make_batch, make_model
from tiny_training import callback, losses, model, rows, trainer

from vanilla_transformer.training import captured_steps
from vanilla_transformer.training import trainer as trainer_module
from vanilla_transformer.training.captured_steps import MOST_SIZES, CapturedSteps

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"
pytestmark = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
SOME_SEARCHES = ("greedy that ends", "several results", "all rules")


@pytest.fixture(autouse=True)
def records(monkeypatch):
    """Lets a CPU do what a GPU does."""
    if not HAS_GPU:
        pretend_to_pack(monkeypatch)
        pretend_to_record_searches(monkeypatch)
        monkeypatch.setattr(captured_steps, "Recorder", StandInRecorder)


@pytest.fixture
def recorded(monkeypatch):
    return count_records(monkeypatch)


def there(values, device=DEVICE):
    return {k: v.to(device) if torch.is_tensor(v) else v for k, v in values.items()}


def lively(dtype=torch.float32, device=DEVICE, **changes):
    return lively_model(**changes).to(device, dtype)


def source(device=DEVICE, lengths=(7, 4, 6)):
    return there(source_batch(lengths), device)


@pytest.mark.parametrize("search", SOME_SEARCHES)
def test_recorded_searches_have_the_tokens_of_plain_ones(monkeypatch, recorded, search):
    for scheme in ("sinusoidal", "rope", "alibi"):
        net = lively(position_embedding_type=scheme)
        options = {**source(), **SEARCHES[search], "max_new_tokens": 90}
        expected = plainly(monkeypatch, net, **options)
        for _ in range(2):
            assert net.generate(**options).tolist() == expected.tolist()
    assert len(recorded) == 6


def score(net, sequences):
    """Returns the mean log-probability of the tokens of each output."""
    inputs = {k: v.repeat_interleave(len(sequences) // 3, 0) for k, v in source().items()}
    with torch.no_grad():
        logits = net.float()(**inputs, decoder_input_ids=sequences[:, :-1]).logits
    return logits.log_softmax(-1).gather(-1, sequences[:, 1:, None]).mean((1, 2)).cpu()


@needs_gpu
@pytest.mark.parametrize("search", SOME_SEARCHES)
def test_recorded_searches_in_bfloat16(monkeypatch, recorded, search):
    """Masked places take part in the sums of a kernel, so that close scores may change places."""
    net = lively(torch.bfloat16)
    options = {**source(), **SEARCHES[search], "max_new_tokens": 12, "eos_token_id": None}
    sequences = plainly(monkeypatch, net, **options), net.generate(**options)
    assert len(recorded) == 1
    plain, recorded = (score(net, found) for found in sequences)
    torch.testing.assert_close(recorded.mean(), plain.mean(), rtol=0.05, atol=0.05)


def test_searches_that_are_not_recorded(monkeypatch, recorded):
    net = lively()
    for options in (
        {"do_sample": True, "top_k": 5},
        {"no_repeat_ngram_size": 2},
        {"num_beams": 2, "return_dict_in_generate": True},
    ):
        options = {**source(), **options, "max_new_tokens": 20}
        found = []
        for generate in (lambda **given: plainly(monkeypatch, net, **given), net.generate):
            torch.manual_seed(0)
            output = generate(**options)
            found.append(output if torch.is_tensor(output) else output.sequences)
        assert found[0].tolist() == found[1].tolist()
    assert not recorded


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_model_on_a_second_device(monkeypatch):
    net = lively(device="cuda:1")
    options = {**source("cuda:1"), "num_beams": 3, "max_new_tokens": 40, "eos_token_id": None}
    assert net.generate(**options).tolist() == plainly(monkeypatch, net, **options).tolist()


@needs_gpu
def test_threads_search_and_sample_at_the_same_time(monkeypatch):
    nets = [lively(), lively(position_embedding_type="rope")]
    options = [{**source(lengths=(n, 4)), "max_new_tokens": 20} for n in range(3, 9)]
    expected = [[plainly(monkeypatch, net, **given).tolist() for given in options] for net in nets]
    found, errors = [[], []], []

    def search(number):
        try:
            for _ in range(3):
                for given in options:
                    found[number].append(nets[number].generate(**given).tolist())
        except Exception as error:
            errors.append(error)

    def draw():
        try:
            for _ in range(6):
                nets[0].generate(**options[0], do_sample=True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=search, args=(n,)) for n in (0, 1)]
    threads += [threading.Thread(target=draw) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert found == [rows * 3 for rows in expected]


@needs_gpu
def test_searches_keep_no_memory():
    net = lively()
    for number in range(40):
        lengths, beams = (3 + number % 9, 4), 1 + number % 4
        net.generate(**source(lengths=lengths), num_beams=beams, max_new_tokens=20)
        if number == 10:
            torch.cuda.synchronize()
            reserved = torch.cuda.memory_reserved()
    assert torch.cuda.memory_reserved() <= reserved + 32 * 2**20


# --- steps ---------------------------------------------------------------------------------------


def step(net, **inputs):
    net.zero_grad()
    output = net.train()(**inputs)
    output.loss.backward()
    return output.loss.item(), [parameter.grad.clone() for parameter in net.parameters()]


@pytest.mark.parametrize("changes", [{}, {"position_embedding_type": "rope", "qk_norm": "all"}])
def test_packed_batches_have_the_loss_and_gradients_of_padded_ones(changes):
    sizes = {"d_model": 32, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    net = make_model(dropout=0.0, **sizes, **changes).to(DEVICE)
    batch = make_batch((70, 4, 130), (5, 140, 3))
    batch = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
    packed = there(pack_in_one_size(batch, net.config, 1000))
    net.set_padding_free(False)
    loss, gradients = step(net, **there(batch))
    net.set_padding_free(True)
    for inputs in (packed, there(batch)):
        found, found_gradients = step(net, **inputs)
        assert found == pytest.approx(loss, rel=1e-4)
        for mine, expected in zip(found_gradients, gradients, strict=True):
            assert (mine - expected).norm() <= 1e-3 * expected.norm() + 1e-5


OPTIONS = {"max_tokens": 100, "logging_steps": 1, "use_cpu": not HAS_GPU, "max_steps": 30}
NET = {"d_model": 32, "dropout": 0.0}


def run(tmp_path, **options):
    """Trains, and returns the losses and the trainer."""
    made = trainer(tmp_path, net=model(**NET), data=rows(80), **{**OPTIONS, **options})
    made.train()
    return losses(made), made


TRAININGS = {
    "adamw": {},
    "bfloat16": {"bf16": True},
    "muon": {"optim": "muon", "gradient_accumulation_steps": 2},
    "clipped": {"max_grad_norm": 0.05, "learning_rate": 0.01},
    "evaluated": {"eval_strategy": "steps", "eval_steps": 4, "predict_with_generate": True},
}


@pytest.mark.parametrize("kind", TRAININGS)
def test_a_recorded_training_is_a_plain_one(tmp_path, monkeypatch, kind):
    with monkeypatch.context() as unrecorded:
        unrecorded.setattr(trainer_module, "can_be_recorded", lambda net: False)
        plain, _ = run(tmp_path, **TRAININGS[kind])
    found, made = run(tmp_path, **TRAININGS[kind])
    assert found == pytest.approx(plain, rel=0.03 if kind in ("bfloat16", "muon") else 2e-3)
    assert made._captured is None


def test_a_weight_that_the_loss_does_not_reach_stays(tmp_path):
    for records in (False, True):
        net = model(**NET)
        net.unused = torch.nn.Parameter(torch.ones(8, 8))
        options = {**OPTIONS, "optim": "muon", "weight_decay": 0.5, "learning_rate": 0.1}
        made = trainer(tmp_path, net=net, **options)
        if not records:
            made.args.max_tokens = None
        made.train()
        assert made.model.unused.cpu().tolist() == torch.ones(8, 8).tolist()


def test_hooks_of_callbacks_are_called(tmp_path):
    calls = []

    def begin(state, control, model):
        model.model.encoder.register_forward_hook(lambda *_: calls.append(1))

    run(tmp_path, callbacks=[callback("on_train_begin", begin)])
    assert len(calls) == OPTIONS["max_steps"]


@needs_gpu
def test_dropout_that_is_switched_off_later(tmp_path):
    def begin(state, control, model):
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0

    def train(dropout):
        net = model(**{**NET, "dropout": dropout})
        late = [callback("on_step_begin", lambda s, c, m: s.global_step == 15 and begin(s, c, m))]
        made = trainer(tmp_path, net=net, data=rows(80), callbacks=late, **OPTIONS)
        made.train()
        return made

    first, second = ([*losses(train(dropout)).values()] for dropout in (0.5, 0.0))
    assert first[:15] != second[:15]
    net = train(0.5).model.train()
    batch = there(pack_in_one_size(make_plain_batch(), net.config, 1000))
    assert net(**batch).loss == net(**batch).loss


def make_plain_batch():
    batch = make_batch((7, 4), (5, 6), vocab=30)
    return {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}


def test_an_interrupted_training_frees_its_graphs(tmp_path):
    def interrupt(state, control, model):
        if state.global_step == 12:
            raise KeyboardInterrupt

    made = trainer(
        tmp_path, net=model(**NET), callbacks=[callback("on_step_end", interrupt)], **OPTIONS
    )
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert made._captured is None


@needs_gpu
def test_the_memory_of_a_hundred_sizes():
    net = model(**NET).to(DEVICE).train()
    steps, items, reserved = CapturedSteps(net), torch.tensor(10, device=DEVICE), []
    for number in range(100):
        batch = make_plain_batch()
        packed = there(pack_in_one_size(batch, net.config, 3000 + 800 * (37 * number % 100)))
        for _ in range(3):
            net.zero_grad()
            assert steps(packed, items).isfinite()
        gc.collect()
        reserved.append(torch.cuda.memory_reserved())
    assert len(steps._recorded) == MOST_SIZES
    assert reserved[-1] <= 1.5 * reserved[40]


@needs_gpu
def test_a_step_without_memory_to_record_is_computed(monkeypatch):
    net = model(**NET).to(DEVICE).train()
    steps, items = CapturedSteps(net), torch.tensor(10, device=DEVICE)
    batch = there(pack_in_one_size(make_plain_batch(), net.config, 3000))
    first = steps(batch, items)
    total = torch.cuda.get_device_properties(0).total_memory

    def record(step, record=steps._recorder.record):
        torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
        try:
            return record(step)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    monkeypatch.setattr(steps._recorder, "record", record)
    net.zero_grad()
    torch.testing.assert_close(steps(batch, items), first)
    assert [*steps._recorded.values()] == [False]


@needs_gpu
@pytest.mark.parametrize("rows", [1, 2, 64, 128])
def test_compiled_layers_take_any_number_of_sentences(tmp_path, rows):
    from accelerate.utils import compile_regions

    net = model(**NET).to(DEVICE).train()
    compiled = CapturedSteps(compile_regions(net, dynamic=True))
    plain = CapturedSteps(net)
    for length in (1, 9):
        batch = make_batch((length,) * rows, (length,) * rows, vocab=30)
        batch = {name: batch[name] for name in ("input_ids", "attention_mask", "labels")}
        packed = there(pack_in_one_size(batch, net.config, 4096))
        for _ in range(3):
            net.zero_grad()
            loss = compiled(packed, torch.tensor(rows, device=DEVICE))
            net.zero_grad()
            torch.testing.assert_close(
                loss, plain(packed, torch.tensor(rows, device=DEVICE)), rtol=1e-3, atol=1e-3
            )


@needs_gpu
def test_rotations_that_have_moved():
    net = model(**NET, position_embedding_type="rope")
    batch = there(pack_in_one_size(make_plain_batch(), net.config, 3000), "cpu")
    expected = net.train()(**batch).loss
    net.to(DEVICE)
    items = (batch["labels"] != -100).sum().to(DEVICE)
    torch.testing.assert_close(net(**there(batch)).loss.cpu(), expected, rtol=1e-4, atol=1e-4)
    steps = CapturedSteps(net)
    for _ in range(3):
        net.zero_grad()
        loss = steps(there(batch), items).cpu()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-4)
    assert steps.is_current_for(net)
    for stack in (net.model.encoder, net.model.decoder):
        stack.embed_positions._frequencies_on(torch.device("cpu"))  # a call on another device
    assert not steps.is_current_for(net)


@needs_gpu
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_resumed_training(tmp_path, deterministic):
    """Equal to the bit if `full_determinism` asks for it."""
    options = {**OPTIONS, "full_determinism": deterministic, "save_strategy": "steps"}
    options |= {"save_steps": 10, "max_steps": 20}
    weights = []
    try:
        for name, stop in (("whole", None), ("stopped", 10)):
            given = {"data": rows(80), **options}
            made = trainer(tmp_path / name, net=model(**NET), stop_at=stop, **given)
            made.train()
            if stop:
                made = trainer(tmp_path / name, net=model(**NET), **given)
                made.train(resume_from_checkpoint=True)
            weights.append([weight.detach().cpu() for weight in made.model.parameters()])
    finally:
        torch.use_deterministic_algorithms(False)
    for whole, resumed in zip(*weights, strict=True):
        if deterministic:
            assert torch.equal(whole, resumed)
        torch.testing.assert_close(whole, resumed, rtol=1e-3, atol=1e-4)
