"""Settings of a training that do not determine its weights, with the reasons.

- Those that are recorded elsewhere are not written to results.
- Those that are irrelevant are written, but do not count. Some of them are the selection: they
  decide which checkpoint is the best one.

Everything else counts. A setting belongs here only if changing it leaves the trained weights as
they are, up to rounding and to what a change of the seed does. Names are ``group.field``, as in
fairseq's configuration.
"""

from __future__ import annotations

#: Settings that are recorded in another form.
RECORDED_ELSEWHERE = {
    "the hashes of the data, of the plugin, and of the checkpoint to start from count instead": (
        "task.data",
        "common.user_dir",
        "checkpoint.restore_file",
        "checkpoint.finetune_from_model",
        "checkpoint.continue_once",
    ),
    "a result has its seed": ("common.seed", "task.seed", "model.train_seed"),
    "the method has the windows, the memory, and the scaling of the model": (
        "model.position_method",
        "model.attention_window",
        "model.score_scaling",
        "model.train_attention_window",
        "model.train_mem_len",
    ),
    "the number of processes that the run has counts, not the requested one": (
        "distributed_training.distributed_world_size",
        "bmuf.distributed_world_size",
    ),
    "names of files, folders, and accounts": (
        "checkpoint.save_dir",
        "common.aim_repo",
        "common.aim_run_hash",
        "common.azureml_logging",
        "common.log_file",
        "common.plasma_path",
        "common.tensorboard_logdir",
        "common.wandb_project",
        "task.plasma_path",
    ),
}

_LOGGING_AND_PROCESS = (
    "common.all_gather_list_size",
    "common.empty_cache_freq",
    "common.log_format",
    "common.log_interval",
    "common.no_progress_bar",
    "common.profile",
    "common.reset_logging",
    "common.suppress_crashes",
    "common.use_plasma_view",
    "dataset.data_buffer_size",
    "dataset.dataset_impl",
    "dataset.gen_subset",
    "dataset.num_shards",
    "dataset.num_workers",
    "dataset.shard_id",
    "distributed_training.fast_stat_sync",
    "distributed_training.heartbeat_timeout",
    "optimization.debug_param_names",
    "task.data_buffer_size",
    "task.dataset_impl",
    "task.use_plasma_view",
)
_DEVICES = (
    "common.cpu",
    "criterion.ddp_backend",
    "distributed_training.broadcast_buffers",
    "distributed_training.bucket_cap_mb",
    "distributed_training.cpu_offload",
    "distributed_training.ddp_backend",
    "distributed_training.device_id",
    "distributed_training.distributed_backend",
    "distributed_training.distributed_init_method",
    "distributed_training.distributed_no_spawn",
    "distributed_training.distributed_num_procs",
    "distributed_training.distributed_port",
    "distributed_training.distributed_rank",
    "distributed_training.find_unused_parameters",
    "distributed_training.gradient_as_bucket_view",
    "distributed_training.no_reshard_after_forward",
    "distributed_training.not_fsdp_flatten_parameters",
    "distributed_training.nprocs_per_node",
    "distributed_training.use_sharded_state",
    "distributed_training.zero_sharding",
    "model.attention_backend",
    "model.checkpoint_activations",
    "model.compile_layers",
    "model.min_params_to_wrap",
    "model.offload_activations",
    "optimizer.use_old_adam",
)
_SAVING = (
    "checkpoint.checkpoint_shard_count",
    "checkpoint.checkpoint_suffix",
    "checkpoint.keep_best_checkpoints",
    "checkpoint.keep_interval_updates",
    "checkpoint.keep_interval_updates_pattern",
    "checkpoint.keep_last_epochs",
    "checkpoint.load_checkpoint_on_all_dp_ranks",
    "checkpoint.no_epoch_checkpoints",
    "checkpoint.no_last_checkpoints",
    "checkpoint.no_save",
    "checkpoint.no_save_optimizer_state",
    "checkpoint.write_checkpoints_asynchronously",
)

#: Settings that decide which checkpoint of a run has the lowest validation loss, besides the
#: validation data. They are part of a :class:`.Reading` of the best checkpoint.
SELECTION = frozenset(
    {
        "checkpoint.best_checkpoint_metric",
        "checkpoint.maximize_best_checkpoint_metric",
        "checkpoint.patience",
        "checkpoint.save_interval",
        "checkpoint.save_interval_updates",
        "data.valid",
        "dataset.batch_size_valid",
        "dataset.combine_valid_subsets",
        "dataset.disable_validation",
        "dataset.fixed_validation_seed",
        "dataset.ignore_unused_valid_subsets",
        "dataset.max_tokens_valid",
        "dataset.max_valid_steps",
        "dataset.skip_invalid_size_inputs_valid_test",
        "dataset.valid_subset",
        "dataset.validate_after_updates",
        "dataset.validate_interval",
        "dataset.validate_interval_updates",
        "lr_scheduler.maximize_best_checkpoint_metric",
        "optimization.max_epoch",
        "optimization.max_update",
        "optimization.stop_min_lr",
        "optimization.stop_time_hours",
        "task.batch_size_valid",
    }
)

#: Irrelevant settings by reason.
IRRELEVANT_BY_REASON = {
    "logging and the process": _LOGGING_AND_PROCESS,
    "the same arithmetic on another device, up to rounding": _DEVICES,
    "which checkpoints are kept": _SAVING,
    "validation and stop conditions: the update count of the checkpoint counts instead": (
        *sorted(SELECTION),
    ),
}

NOT_WRITTEN = frozenset(name for names in RECORDED_ELSEWHERE.values() for name in names)
IRRELEVANT = frozenset().union(*IRRELEVANT_BY_REASON.values())
