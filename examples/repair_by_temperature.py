"""Fit a temperature on held-out digits and measure calibration before and after: a few seconds.

python examples/repair_by_temperature.py
"""

import torch
from torch.nn.functional import cross_entropy

from orthograd import calibration
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH, HELD_OUT = 300, 32, 400


def main():
    """Train until the network is overconfident, then repair it with one number."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    model = MODELS["cnn"](data.shape, data.classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    with torch.no_grad():
        logits, answers = model(data.test_images), data.test_labels
    # Fit on one part of the images that were not trained on, report on the other.
    scaling = calibration.TemperatureScaling().fit(logits[:HELD_OUT], answers[:HELD_OUT])
    print(f"temperature {scaling.temperature:.2f}")
    for name, given in (("before", logits[HELD_OUT:]), ("after", scaling(logits[HELD_OUT:]))):
        metrics = calibration.evaluate(given, answers[HELD_OUT:])
        print(f"{name:6} accuracy {metrics.top1_accuracy:.1f}%  loss {metrics.loss:.3f}  ECE {metrics.ece:.3f}")


if __name__ == "__main__":
    main()
