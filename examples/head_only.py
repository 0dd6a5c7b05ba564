"""⊥Grad on the last layer alone, beside ⊥Grad on all layers and plain SGD: about fifteen seconds.

python examples/head_only.py
"""

import torch
from torch.nn.functional import cross_entropy

import orthograd
from orthograd import calibration
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH = 100, 32
HEAD = "11."  # the last layer of this network


def is_head(name, parameter):
    """True if a parameter belongs to the last layer."""
    return name.startswith(HEAD)


def main():
    """Train the same network three ways and print what its confidence comes to."""
    torch.set_num_threads(1)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    for name, where in {"SGD": None, "⊥Grad, all layers": lambda *_: True, "⊥Grad, head only": is_head}.items():
        torch.manual_seed(0)
        model = MODELS["cnn_batchnorm"](data.shape, data.classes)
        optimizer = torch.optim.SGD(model.named_parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        if where is not None:
            orthograd.attach(optimizer, where=where)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(images)).split(BATCH):
                optimizer.zero_grad()
                cross_entropy(model(images[rows]), labels[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            metrics = calibration.evaluate(model.eval()(data.test_images), data.test_labels)
        gap = metrics.max_softmax - metrics.top1_accuracy / 100
        print(
            f"{name:17} accuracy {metrics.top1_accuracy:.1f}%  confidence − accuracy {gap:+.3f}  ECE {metrics.ece:.3f}"
        )


if __name__ == "__main__":
    main()
