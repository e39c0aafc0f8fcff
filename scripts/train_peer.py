"""The loop that a researcher would write: DataLoader, torchvision transforms, one seed after another."""

from collections.abc import Sequence

import torch
from schedulefree import AdamWScheduleFree
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from models.classifier import Classifier
from train.data import DeviceImages
from train.randomness import generator
from train.settings import TrainSettings


class Examples(Dataset):
    """Standardised images of one subset, each transformed when it is asked for."""

    def __init__(self, data: DeviceImages, subset: Tensor, transform: nn.Module | transforms.Compose) -> None:
        self.images, self.labels = data.images[subset].cpu(), data.labels[subset].tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(self.images[i]), self.labels[i]


def train_one(
    model: Classifier, data: DeviceImages, validation: DeviceImages, subset: Tensor, seed: int, settings: TrainSettings
) -> list[float]:
    """Train one seed for `max_epochs` epochs of one pass each; validation losses in bits after every one."""
    device = data.images.device
    model.reset_parameters(generator(seed, len(subset), "init"))
    side = data.image_shape[-2:]
    augment = [transforms.RandomCrop(side, padding=data.padding)] if data.padding else []
    augment += [transforms.RandomHorizontalFlip()] if data.flip else []
    batch_size = len(subset) // -(-len(subset) // settings.batch_size)  # as ours, which cuts into equal batches
    loader = DataLoader(
        Examples(data, subset, transforms.Compose(augment)),
        batch_size=batch_size,
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(seed),
    )
    optimizer = AdamWScheduleFree(
        _groups(model, settings), lr=settings.lr, betas=settings.betas, warmup_steps=settings.warmup_steps
    )
    everything = torch.arange(len(validation), device=device)
    bits = []
    for _ in range(settings.max_epochs):
        optimizer.train()
        for x, z in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(device)), z.to(device)).backward()
            optimizer.step()
        optimizer.eval()
        with torch.no_grad():
            nats = [
                F.cross_entropy(model(validation.images[part]), validation.labels[part], reduction="sum")
                for part in everything.split(settings.eval_batch_size)
            ]
        bits.append(float(torch.stack(nats).sum()) / len(validation) / torch.tensor(2.0).log().item())
    return bits


def _groups(model: Classifier, settings: TrainSettings) -> Sequence[dict]:
    """One group for each learning rate of the parametrisation."""
    factors = model.learning_rates()
    parameters = dict(model.named_parameters())
    return [
        {"params": [parameters[name] for name in parameters if factors[name] == factor], "lr": settings.lr * factor}
        for factor in sorted(set(factors.values()))
    ]
