"""A tiny Llama as a GGUF file, in the layout of llama.cpp's converter (convert_hf_to_gguf.py)."""

from pathlib import Path
from typing import Any

NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
"""transformers' names of Llama's tensors → GGUF's."""


def write_gguf(directory: Path, path: Path) -> Path:
    """Write the Llama of ``directory``, with its tokenizer and chat template, unquantized to ``path``."""
    import gguf
    import transformers

    model = transformers.LlamaForCausalLM.from_pretrained(directory)
    writer = gguf.GGUFWriter(path, "llama")
    _write_shape(writer, model.config)
    _write_tokenizer(writer, transformers.AutoTokenizer.from_pretrained(directory))
    for name, tensor in model.state_dict().items():
        writer.add_tensor(*_renamed(name, tensor, model.config))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_shape(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_vocab_size(config.vocab_size)


def _write_tokenizer(writer: Any, tokenizer: Any) -> None:
    from gguf import TokenType

    ids = tokenizer.get_vocab()
    pieces = sorted(ids, key=ids.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(pieces)
    writer.add_token_types(
        [TokenType.CONTROL if p in tokenizer.all_special_tokens else TokenType.NORMAL for p in pieces]
    )
    writer.add_token_merges(["a t"])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_chat_template(tokenizer.chat_template)


def _renamed(name: str, tensor: Any, config: Any) -> tuple[str, Any]:
    """llama.cpp rotates neighbouring pairs, transformers the two halves of a head: the rows of q and k change places."""
    place, _, part = name.removeprefix("model.").removesuffix(".weight").rpartition(".")
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(part)
    if heads:
        tensor = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
    block = f"blk.{place.split('.')[1]}." if place else ""
    return f"{block}{NAMES[part]}.weight", tensor.contiguous().numpy()
