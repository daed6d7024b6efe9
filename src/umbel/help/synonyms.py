"""Words of PyTorch, Flower and scikit-learn for names of umbel."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

SYNONYMS: dict[str, tuple[str, ...]] = {
    "fesem": ("wecfl",),
    "fedgroup": ("flexcfl",),
    "local-only": ("local", "standalone", "individual", "separate", "solo"),
    "sattler": ("cfl", "clustered_fl"),
    "averaging": ("aggregation", "weighting"),
    "batch_size": ("batch", "batchsize", "bs", "local_batch_size", "minibatch_size", "mini_batch"),
    "checkpoint_every": ("checkpoint_interval", "save_every", "save_freq", "save_steps"),
    "clients": ("num_clients", "n_clients", "num_users", "num_partitions", "num_supernodes"),
    "clip": ("max_grad_norm", "clip_norm", "clipping_norm", "l2_norm_clip", "max_norm"),
    "device": ("cuda", "gpu", "gpus", "accelerator", "use_cuda", "use_gpu", "num_gpus"),
    "drop_last": ("droplast",),
    "epochs": ("epoch", "num_epochs", "n_epochs", "local_epochs", "max_epochs", "nb_epochs"),
    "epsilon": ("eps",),
    "evaluate_every": (
        "eval_every",
        "eval_interval",
        "eval_freq",
        "test_every",
        "evaluate_interval",
    ),
    "experiments": ("configs", "examples", "recipes"),
    "hidden": ("hidden_size", "hidden_sizes", "hidden_dim", "hidden_layer_sizes", "layers"),
    "label_alpha": ("alpha", "dirichlet", "dirichlet_alpha", "concentration"),
    "algorithm": ("method", "strategy", "algo", "aggregator"),
    "local": ("local_training", "training", "train", "client", "trainer"),
    "lr": ("learning_rate", "learningrate", "eta", "step_size", "client_lr", "local_lr"),
    "lr_decay": ("gamma", "scheduler", "lr_scheduler", "decay", "lr_gamma"),
    "max_epsilon": ("target_epsilon", "epsilon"),
    "methods": ("algorithms", "strategies", "aggregators"),
    "metrics": ("metric", "scoring"),
    "model": ("net", "network", "arch", "architecture", "module"),
    "models": ("networks", "nets", "architectures"),
    "name": ("title", "run_name", "type", "kind"),
    "net": ("model", "network", "module"),
    "noise_multiplier": ("noise", "sigma"),
    "num_clusters": ("n_clusters", "k", "clusters", "nclusters", "num_groups", "n_components"),
    "objective": ("loss", "criterion", "loss_fn", "loss_function", "task"),
    "optimizer": ("optim", "opt", "optimiser"),
    "participation": (
        *("fraction", "fraction_fit", "fraction_train", "client_fraction", "frac", "join_ratio"),
        *("sample_rate", "clients_per_round", "client_sampling", "min_fit_clients"),
    ),
    "personal": ("finetune", "fine_tune", "fine_tuning", "finetuning", "personalize"),
    "precision": ("dtype", "amp", "fp16", "bf16", "half", "mixed_precision"),
    "proximal": ("mu", "proximal_mu", "prox"),
    "rounds": (
        *("num_rounds", "n_rounds", "comm_rounds", "communication_rounds", "global_rounds"),
        *("num_server_rounds", "round", "n_iter", "max_iter", "global_epochs"),
    ),
    "scenario": ("dataset", "data", "federation"),
    "scenarios": ("datasets", "data", "partitions"),
    "seed": ("random_state", "random_seed", "rng", "manual_seed"),
    "steps": ("num_steps", "n_steps", "max_steps", "local_steps", "local_iterations"),
    "test_fraction": ("test_size", "test_ratio", "test_split"),
    "validation_fraction": ("val_size", "val_fraction", "val_split", "validation_split"),
    "weight_decay": ("wd", "l2", "weightdecay"),
    "beta1": ("betas",),
    "mu": ("proximal_mu", "proximal"),
    "workers": ("num_workers", "n_workers", "n_jobs", "jobs", "processes", "num_processes"),
    # commands and options of the command line
    "run": ("train", "fit", "start", "simulate", "launch", "execute"),
    "--runs-dir": ("--out", "--output", "--output-dir", "--save-dir", "--results-dir", "--log-dir"),
    "--budget": ("--rounds", "--num-rounds", "--time", "--max-time", "--max-rounds"),
    "--seeds": ("--num-seeds", "--repeats", "--trials"),
    "--help": ("help", "usage", "man"),
}
"""Name in umbel -> words of other libraries, in lower case. A word may stand for several names."""

ATTRIBUTES: dict[str, dict[str, tuple[str, ...]]] = {
    "umbel": {
        "umbel.Run(method, federation, net)": ("fit", "train", "run", "simulate", "start"),
        "umbel.Run(..., seed=1)": ("seed", "manual_seed", "set_seed"),
        "umbel.scenario(name), or umbel.Federation.from_arrays(...)": ("load_data", "load_dataset"),
        "`umbel list` on the command line": ("list", "list_scenarios", "list_methods"),
    },
    "Run": {
        "run.save(folder, 30), or for state, record in run.rounds(30)": (
            *("fit", "train", "run", "start", "execute", "simulate"),
        ),
    },
    "Federation": {
        'umbel.scenario("table", path=FILE, client=COLUMN, target=COLUMN)': (
            *("from_csv", "from_parquet", "from_file", "read_csv"),
        ),
        "umbel.Federation.from_arrays({name: (part[columns], part[target]) "
        "for name, part in table.groupby(client)})": ("from_pandas", "from_dataframe", "from_df"),
        "umbel.Federation.from_arrays({name: (x, y), ...})": (
            *("from_numpy", "from_tensors", "from_dict", "from_list", "from_torch"),
        ),
    },
    "Result": {
        "result.model(cluster), or result.model_for(client), and call it": (
            *("predict", "predict_proba", "forward", "models"),
        ),
        "result.records": ("history", "metrics", "losses"),
        "result.last.accuracy, or result.last.loss": ("accuracy", "loss", "score", "scores"),
        "result.clusters": ("labels", "labels_", "assignments"),
    },
}
"""Class, or the package -> advice -> attributes of other libraries with that meaning."""


def synonym(word: str, known: Container[str]) -> str | None:
    """The known name that users of other libraries call by this word; None if there is none."""
    word = word.lower() if word.startswith("--") else word.lower().replace("-", "_")
    return next((name for name, words in SYNONYMS.items() if word in words and name in known), None)


def instead(owner: str, word: str) -> str:
    """Return what to write for an attribute that users of other libraries expect, or ""."""
    of_owner = ATTRIBUTES[owner].items()
    return next((f"; write {write}" for write, words in of_owner if word.lower() in words), "")


class Answering(type):
    """The type of classes in `ATTRIBUTES`: errors of their missing attributes say what to write."""

    if not TYPE_CHECKING:  # or a type checker would take any attribute for one that is there

        def __getattr__(cls, name: str) -> object:
            return _answered(cls, name, type.__getattribute__)


class Answered(metaclass=Answering):
    """Base class whose objects say what to write in errors of missing attributes."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            return _answered(self, name, object.__getattribute__)


def _answered(thing: object, name: str, get: Callable[[Any, str], object]) -> object:
    """Get the attribute again, as its property may have failed, and add to the error."""
    try:
        return get(thing, name)
    except AttributeError as error:
        kinds = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
        owner = next((kind.__name__ for kind in kinds if kind.__name__ in ATTRIBUTES), None)
        if owner is not None and str(error).endswith(f"has no attribute {name!r}"):
            error.args = (f"{error}{instead(owner, name)}",)
        raise


def same(word: str, known: Container[str]) -> str | None:
    """The known name that is this word, or that others call by it; None if there is none."""
    return word if word in known else synonym(word, known)
