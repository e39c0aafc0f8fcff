"""Fits one model, or an ensemble of seeds at once, on a device-resident dataset."""
