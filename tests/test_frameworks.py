from __future__ import annotations

import inspect

import pytest
import torch
from torch.utils.data import DataLoader

import orthograd
from tests.conftest import cosine

pytestmark = pytest.mark.filterwarnings("ignore")  # the frameworks advise more workers, loggers and devices

BATCH, BATCHES, CLIP = 4, 8, 0.05  # every gradient here is longer than CLIP


def data():
    seeded, size = torch.Generator().manual_seed(1), BATCH * BATCHES
    x, labels = torch.randn(size, 8, generator=seeded), torch.randint(3, (size,), generator=seeded)
    return [{"x": x[i], "labels": labels[i]} for i in range(size)]


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))

    def forward(self, x, labels):
        logits = self.layers(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def recording(base):
    """A subclass of an optimizer class that notes the gradients which reach the body of the base's step."""
    body = torch.no_grad()(inspect.unwrap(base.step))  # without torch's wrapper, which would run the hooks again

    class Recording(base):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.cosines, self.lengths = [], []

        def step(self, closure=None):
            loss = None if closure is None else closure()
            given = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            self.cosines.append(max(cosine(p.grad, p) for p in given))
            self.lengths.append(torch.stack([p.grad.double().norm() for p in given]).norm().item())
            body(self)
            return loss

    return Recording


SGD, AdamW = recording(torch.optim.SGD), recording(torch.optim.AdamW)


def plain(parameters, base=SGD):
    return base(parameters, lr=0.02)


def late(parameters, base=SGD):
    return plain(parameters, base)  # the test attaches to the framework's wrapper of it


def attached(parameters, base=SGD):
    return orthograd.attach(plain(parameters, base)).optimizer


def subclassed(parameters, base=SGD):
    return orthograd.orthogonal(base)(parameters, lr=0.02)


def published(parameters, base=SGD):
    return orthograd.OrthoGrad(parameters, base, lr=0.02)


def ways(*those):
    return pytest.mark.parametrize("way", those, ids=lambda way: way.__name__)


def check(optimizer, *, steps, orthogonal, length=None):
    """So many steps, none with a radial part. Without ⊥Grad each has one: the test can fail."""
    assert len(optimizer.cosines) == steps
    if orthogonal:
        assert max(optimizer.cosines) < 1e-6
    else:
        assert min(optimizer.cosines) > 1e-3
    if length is not None:
        assert optimizer.lengths == pytest.approx([length] * steps, rel=1e-4)


def assert_same_weights(left, right):
    torch.testing.assert_close(left.state_dict(), right.state_dict(), rtol=0, atol=0)


# Lightning


@pytest.fixture
def fit(tmp_path):
    """Train with Lightning; gives the trainer."""
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self, way, base):
            super().__init__()
            self.way, self.base, self.classifier = way, base, Classifier()

        def configure_optimizers(self):
            return self.way(self.parameters(), self.base)

        def training_step(self, batch, index):
            return self.classifier(**batch)["loss"]

    class ManualModule(Module):
        automatic_optimization = False

        def on_train_start(self):
            if self.way is late:
                assert orthograd.attach(self.optimizers()).optimizer is self.trainer.optimizers[0]

        def training_step(self, batch, index):
            self.optimizers().zero_grad()
            self.manual_backward(super().training_step(batch, index))
            self.optimizers().step()

    def fit(way, base=SGD, *, manual=False, resume=None, **options):
        module = (ManualModule if manual else Module)(way, base)
        chatter = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
        quiet = dict.fromkeys(chatter, False)
        trainer = lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path, **quiet, **options)
        trainer.fit(module, DataLoader(data(), BATCH), ckpt_path=resume)
        return trainer

    return fit


@pytest.mark.parametrize("clip", ["norm", "value"])
@ways(plain, attached, subclassed, published)
def test_lightning_clips_before_the_projection_and_accumulates(fit, way, clip):
    clipping = {"gradient_clip_val": CLIP, "gradient_clip_algorithm": clip}
    trainer = fit(way, max_epochs=2, accumulate_grad_batches=2, **clipping)
    length = CLIP if clip == "norm" else None
    check(trainer.optimizers[0], steps=BATCHES, orthogonal=way is not plain, length=length)


@ways(plain, attached, late)
def test_lightning_with_manual_optimization(fit, way):
    trainer = fit(way, manual=True, max_epochs=1)
    check(trainer.optimizers[0], steps=BATCHES, orthogonal=way is not plain)


@ways(plain, attached)
def test_lightning_in_mixed_precision(fit, way):
    trainer = fit(way, max_epochs=1, precision="bf16-mixed")
    check(trainer.optimizers[0], steps=BATCHES, orthogonal=way is not plain)


@ways(attached, subclassed)
def test_lightning_resumes_from_a_checkpoint_as_if_it_had_not_stopped(fit, way, tmp_path):
    straight = fit(way, AdamW, max_epochs=4)
    half = fit(way, AdamW, max_epochs=2)
    half.save_checkpoint(tmp_path / "half.ckpt")
    resumed = fit(way, AdamW, max_epochs=4, resume=tmp_path / "half.ckpt")
    check(resumed.optimizers[0], steps=2 * BATCHES, orthogonal=True)
    assert_same_weights(resumed.lightning_module, straight.lightning_module)


# Hugging Face Trainer


@pytest.fixture
def train(tmp_path):
    """Train with the Hugging Face Trainer; gives the trained model and the optimizer."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    def train(orthogonal, as_class, *, resume=None, **options):
        model = Classifier()
        if as_class:
            kind = orthograd.orthogonal(AdamW) if orthogonal else AdamW
            chosen = {"optimizer_cls_and_kwargs": (kind, {"lr": 0.02})}
        else:
            optimizer = (attached if orthogonal else plain)(model.parameters(), AdamW)
            chosen = {"optimizers": (optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))}
        quiet = {"disable_tqdm": True, "logging_strategy": "no", "report_to": "none", "use_cpu": True}
        sizes = {"per_device_train_batch_size": BATCH, "gradient_accumulation_steps": 2, "max_grad_norm": CLIP}
        arguments = transformers.TrainingArguments(tmp_path, **quiet, **sizes, num_train_epochs=2, **options)
        trainer = transformers.Trainer(model, arguments, train_dataset=data(), **chosen)
        trainer.train(resume_from_checkpoint=resume)
        return model, trainer.optimizer.optimizer  # the Trainer keeps it in Accelerate's wrapper

    return train


as_class = pytest.mark.parametrize("as_class", [False, True], ids=["optimizers", "optimizer_cls_and_kwargs"])


@as_class
@pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])
def test_hugging_face_clips_and_accumulates(train, orthogonal, as_class):
    _, optimizer = train(orthogonal, as_class, save_strategy="no")
    assert isinstance(optimizer, AdamW)
    check(optimizer, steps=BATCHES, orthogonal=orthogonal, length=CLIP)


@as_class
def test_hugging_face_resumes_from_a_checkpoint_as_if_it_had_not_stopped(train, as_class, tmp_path):
    half = BATCHES // 2
    straight, _ = train(True, as_class, save_strategy="epoch")
    resumed, optimizer = train(True, as_class, save_strategy="no", resume=str(tmp_path / f"checkpoint-{half}"))
    check(optimizer, steps=half, orthogonal=True)
    assert_same_weights(resumed, straight)


def test_hugging_face_with_an_optimizer_that_it_makes_inside_everywhere(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    quiet = {"disable_tqdm": True, "logging_strategy": "no", "save_strategy": "no", "report_to": "none"}
    arguments = transformers.TrainingArguments(tmp_path, optim="adafactor", use_cpu=True, max_steps=2, **quiet)
    trainer = transformers.Trainer(Classifier(), arguments, train_dataset=data())
    with orthograd.everywhere() as handles:
        trainer.train()
    assert [type(handle.optimizer).__name__ for handle in handles] == ["Adafactor"]
    assert trainer.optimizer.optimizer is handles[0].optimizer
    assert "4 of 4 parameters" in repr(handles[0])


# Accelerate


@ways(plain, attached, subclassed, late)
def test_accelerate_clips_and_accumulates(way):
    accelerator = pytest.importorskip("accelerate").Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Classifier()
    own = way(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, own, DataLoader(data(), BATCH))
    if way is late:
        assert orthograd.attach(optimizer).optimizer is own
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()
    check(own, steps=BATCHES // 2, orthogonal=way is not plain, length=CLIP)
