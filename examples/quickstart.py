"""Train a small network on scikit-learn's digits with SGD and with ⊥Grad, and measure both: about ten seconds.

python examples/quickstart.py

This is one seed of what `orthograd compare` does by default. Other networks differ: docs/method.md has the table.
"""

import torch
from torch.nn.functional import cross_entropy

import orthograd
from orthograd import calibration
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH = 300, 32


def trained(images, labels, *, with_orthograd):
    """The same network from the same seed, with or without ⊥Grad."""
    torch.manual_seed(0)
    model = MODELS["cnn"]((1, 8, 8), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    if with_orthograd:
        orthograd.attach(optimizer)  # the only line that differs
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    return model


def main():
    """Print accuracy, confidence, loss and ECE of both networks on the test images."""
    torch.set_num_threads(1)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    for name in ("SGD", "⊥Grad"):
        model = trained(images, labels, with_orthograd=name == "⊥Grad")
        with torch.no_grad():
            metrics = calibration.evaluate(model(data.test_images), data.test_labels)
        print(
            f"{name:6} accuracy {metrics.top1_accuracy:.1f}%  confidence {100 * metrics.max_softmax:.1f}%  "
            f"loss {metrics.loss:.3f}  ECE {metrics.ece:.3f}"
        )


if __name__ == "__main__":
    main()
