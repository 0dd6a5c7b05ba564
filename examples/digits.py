"""Two small networks on scikit-learn's digits, one overfitted and one regularized: files for `orthograd evaluate`.

python examples/digits.py FOLDER writes four .npz files there, about a minute's work for one core.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

TRAIN, HELD_OUT, TEST = slice(0, 180), slice(180, 800), slice(800, None)
PENALTIES = {"overfitted": 0.0, "regularized": 1.0}


def noisy_digits(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The digits in random order, with noise that makes them hard to tell apart."""
    generator = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    order = generator.permutation(len(images))
    return images[order] / 16 + generator.normal(0, 0.35, images.shape), labels[order]


def logits_of(network: MLPClassifier, images: np.ndarray) -> np.ndarray:
    """The logits of the network."""
    hidden = np.maximum(images @ network.coefs_[0] + network.intercepts_[0], 0)
    return hidden @ network.coefs_[1] + network.intercepts_[1]


def main(folder: Path) -> None:
    """Train both networks and write what they say of the held-out and the test images."""
    images, labels = noisy_digits()
    folder.mkdir(parents=True, exist_ok=True)
    for name, penalty in PENALTIES.items():
        network = MLPClassifier((128,), alpha=penalty, max_iter=2000, tol=1e-7, n_iter_no_change=100, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the overfitted one is trained beyond convergence on purpose
            network.fit(images[TRAIN], labels[TRAIN])
        for part, rows in (("held-out", HELD_OUT), ("test", TEST)):
            logits = logits_of(network, images[rows]).astype(np.float32)
            np.savez(folder / f"{name}-{part}.npz", logits=logits, labels=labels[rows])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "predictions"))
