"""The baseline for finding wrong labels: confident learning (Northcutt et al. 2021), by cleanlab."""

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor


def label_suspicion(x: Tensor, z: Tensor, *, folds: int = 5, seed: int = 0) -> Tensor:
    """How unlikely each label is to be right, [n] float64 in 0..1: 1 less cleanlab's label quality.

    Needs `uv sync --group bench`. Probabilities are those of logistic regressions on standardised inputs that have
    not seen the example.

    Args:
        x: inputs, [n, ...].
        z: given labels, [n], of classes 0..k-1 that all occur.
        folds: of the cross-validation.
        seed: of the folds.
    """
    from cleanlab.rank import get_label_quality_scores  # pyright: ignore[reportMissingImports]

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    splits = StratifiedKFold(folds, shuffle=True, random_state=seed)
    inputs, labels = x.flatten(1).double().cpu().numpy(), z.cpu().numpy()
    probabilities = np.asarray(cross_val_predict(model, inputs, labels, cv=splits, method="predict_proba"))
    return 1 - torch.from_numpy(get_label_quality_scores(labels, probabilities)).double()
