"""Length extrapolation of language models with fairseq: ALiBi and the methods it is compared with."""
