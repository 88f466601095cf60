"""From whole objects to the few facts that the cache keeps of each."""
