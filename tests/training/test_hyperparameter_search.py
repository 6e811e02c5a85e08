"""`hyperparameter_search` of Trainer: each trial is the training that its values say."""

import pytest
from tiny_training import model, trainer

optuna = pytest.importorskip("optuna", reason="needs the package `optuna`")


def values_of(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True),
        "max_steps": trial.suggest_int("max_steps", 2, 4),
        "max_tokens": trial.suggest_categorical("max_tokens", [20, 40]),
    }


@pytest.mark.parametrize("optim", ["adamw_torch", "muon"])
def test_every_trial_is_a_training_of_its_own(tmp_path, optim):
    options = {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 9, "optim": optim}
    made = trainer(tmp_path / "search", net=model(dropout=0.0), **options)
    made.model_init, trials = lambda trial: model(dropout=0.0), []

    def objective(metrics):
        given = vars(made.args)
        trials.append({n: given[n] for n in ("learning_rate", "max_steps", "max_tokens")})
        trials[-1]["loss"] = metrics["eval_loss"]
        return metrics["eval_loss"]

    best = made.hyperparameter_search(
        hp_space=values_of,
        compute_objective=objective,
        n_trials=3,
        direction="minimize",
        backend="optuna",
        sampler=optuna.samplers.RandomSampler(seed=0),
    )
    assert best.objective == min(trial["loss"] for trial in trials)
    assert len({trial["learning_rate"] for trial in trials}) == 3
    for number, trial in enumerate(trials):
        loss = trial.pop("loss")
        alone = trainer(tmp_path / str(number), net=model(dropout=0.0), **{**options, **trial})
        alone.train()
        assert alone.evaluate()["eval_loss"] == loss
