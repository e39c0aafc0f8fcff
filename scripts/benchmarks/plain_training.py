"""A plain training loop for comparison: DataLoader, torchvision transforms, one seed after another."""

import copy
import math

import torch
from schedulefree import AdamWScheduleFree
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from models.classifier import Classifier
from models.stackable_layers import Conv2d, Linear
from train.device_images import DeviceImages
from train.randomness import generator
from train.settings import TrainSettings


class Examples(Dataset):
    """Images of one subset, transformed on access."""

    def __init__(self, data: DeviceImages, subset: Tensor, transform: nn.Module) -> None:
        self.images, self.labels = data.images[subset].cpu(), data.labels[subset].tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(self.images[i]), self.labels[i]


def batches(data: DeviceImages, subset: Tensor, seed: int, settings: TrainSettings) -> DataLoader:
    """Return shuffled batches of one epoch, each image standardised, cropped and flipped separately."""
    channels, *side = data.image_shape
    augment: list[nn.Module] = [v2.Normalize([0.0] * channels, [1.0] * channels)]  # changes nothing
    augment += [v2.RandomCrop(side, padding=data.padding)] if data.padding else []
    augment += [v2.RandomHorizontalFlip()] if data.flip else []
    return DataLoader(
        Examples(data, subset, v2.Compose(augment)),
        batch_size=len(subset) // -(-len(subset) // settings.batch_size),  # equal batches, as in our engine
        shuffle=True,
        drop_last=True,
        generator=torch.Generator().manual_seed(seed),
    )


def of_torch_layers(model: Classifier) -> nn.Module:
    """Return a copy of a network, its linear layers and convolutions those of torch.nn with the same weights."""
    network = copy.deepcopy(model)
    for name, ours in [*network.named_modules()]:
        if isinstance(ours, Linear):
            same = nn.Linear(ours.weight.shape[1], ours.weight.shape[0])
        elif isinstance(ours, Conv2d):
            out, into, side, _ = ours.weight.shape
            same = nn.Conv2d(into, out, side, ours.stride, ours.padding)
        else:
            continue
        same.load_state_dict(ours.state_dict())
        network.set_submodule(name, same.to(ours.weight))
    return network


def train_one(
    model: Classifier, data: DeviceImages, validation: DeviceImages, subset: Tensor, seed: int, settings: TrainSettings
) -> float:
    """Train one seed for `max_epochs` epochs; return the final validation loss in bits."""
    device = data.images.device
    model.reset_parameters(generator(seed, len(subset), "init"))
    network = of_torch_layers(model)
    parameters = [*zip(network.parameters(), model.learning_rates().values(), strict=True)]
    groups = [
        {"params": [p for p, multiplier in parameters if multiplier == factor], "lr": settings.lr * factor}
        for factor in sorted({multiplier for _, multiplier in parameters})
    ]
    optimizer = AdamWScheduleFree(groups, lr=settings.lr, betas=settings.betas, warmup_steps=settings.warmup_steps)
    loader, bits = batches(data, subset, seed, settings), math.nan
    for _ in range(settings.max_epochs):
        optimizer.train()
        for x, z in loader:
            optimizer.zero_grad()
            F.cross_entropy(network(x.to(device)), z.to(device)).backward()
            optimizer.step()
        optimizer.eval()
        with torch.no_grad():
            parts = torch.arange(len(validation), device=device).split(settings.eval_batch_size)
            nats = sum(
                float(F.cross_entropy(network(validation.images[part]), validation.labels[part], reduction="sum"))
                for part in parts
            )
        bits = nats / len(validation) / math.log(2)
    return bits
