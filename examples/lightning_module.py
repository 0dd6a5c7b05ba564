"""A Lightning module with ⊥Grad that logs its calibration: about fifteen seconds, most of it imports.

python examples/lightning_module.py
"""

import logging
import warnings

import lightning
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import orthograd
from orthograd.calibration import Evaluation
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH = 150, 32


class Classifier(lightning.LightningModule):
    """A small network for digits, trained with ⊥Grad."""

    def __init__(self):
        super().__init__()
        self.network = MODELS["cnn"]((1, 8, 8), 10)

    def configure_optimizers(self):
        """SGD with ⊥Grad attached."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
        orthograd.attach(optimizer)
        return optimizer

    def training_step(self, batch, index):
        """The loss on a batch."""
        images, labels = batch
        return cross_entropy(self.network(images), labels)

    def on_test_epoch_start(self):
        """Begin a new evaluation."""
        self.evaluation = Evaluation(metrics=["top1_accuracy", "loss", "ece"])

    def test_step(self, batch, index):
        """Add a batch to the evaluation."""
        images, labels = batch
        self.evaluation.update(self.network(images), labels)

    def on_test_epoch_end(self):
        """Log what the evaluation says of all batches."""
        for name, value in self.evaluation.compute().as_row().items():
            self.log(name, value)


def main():
    """Train and print the test metrics."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")  # advice about workers
    torch.set_num_threads(1)
    lightning.seed_everything(0, verbose=False)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    quiet = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", **dict.fromkeys(quiet, False))
    module = Classifier()
    trainer.fit(module, DataLoader(TensorDataset(images, labels), BATCH, shuffle=True))
    (metrics,) = trainer.test(module, DataLoader(TensorDataset(data.test_images, data.test_labels), 256), verbose=False)
    print("  ".join(f"{name} {value:.3f}" for name, value in metrics.items()))


if __name__ == "__main__":
    main()
