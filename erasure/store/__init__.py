"""Files that outlive a process: atomic storage, a checksummed cache, leases."""
