"""The Hugging Face Trainer with ⊥Grad and SGD: about fifteen seconds, most of it imports.

python examples/huggingface_trainer.py
"""

import tempfile

import torch
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

import orthograd
from orthograd import calibration
from orthograd.lab.data import digits
from orthograd.lab.networks import MODELS

EPOCHS, BATCH = 150, 32


class Classifier(torch.nn.Module):
    """A small network for digits that gives the Trainer its loss."""

    def __init__(self):
        super().__init__()
        self.network = MODELS["cnn"]((1, 8, 8), 10)

    def forward(self, images, labels):
        """The loss and the logits of a batch."""
        logits = self.network(images)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


class OrthoTrainer(Trainer):
    """A Trainer whose optimizer takes ⊥Grad steps."""

    def create_optimizer(self, *args, **kwargs):
        """The Trainer's optimizer, with its weight-decay groups, and ⊥Grad attached once."""
        is_new = self.optimizer is None
        optimizer = super().create_optimizer(*args, **kwargs)
        if is_new:
            orthograd.attach(optimizer)
        return optimizer


def main():
    """Train, predict, and print the calibration of the predictions."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = digits()
    images, labels, _ = data.few(10, seed=0)
    train = [{"images": image, "labels": label} for image, label in zip(images, labels, strict=True)]
    test = [{"images": i, "labels": label} for i, label in zip(data.test_images, data.test_labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=256,
            lr_scheduler_type="constant",
            weight_decay=5e-4,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        sgd = torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}
        trainer = OrthoTrainer(Classifier(), arguments, train_dataset=train, optimizer_cls_and_kwargs=sgd)
        trainer.train()
        predictions = trainer.predict(test)
    metrics = calibration.evaluate(torch.tensor(predictions.predictions), torch.tensor(predictions.label_ids))
    print(f"accuracy {metrics.top1_accuracy:.1f}%  loss {metrics.loss:.3f}  ECE {metrics.ece:.3f}")


if __name__ == "__main__":
    main()
