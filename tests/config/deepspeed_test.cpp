// Configs as DeepSpeed users have them.
#include "tests/config/sample.h"

namespace taut::config {
namespace {

// In the shape of DeepSpeed's documented examples, with a model and data added.
constexpr const char* kDeepSpeedConfig = R"({
  "model": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "seq_length": 32, "vocab_size": 512},
  "data": {"mock": true},
  "train_batch_size": 8,
  "gradient_accumulation_steps": 1,
  "steps_per_print": 2000,
  "wall_clock_breakdown": false,
  "dump_state": false,
  "prescale_gradients": false,
  "sparse_gradients": false,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.00015, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100, "warmup_num_steps": 10, "warmup_type": "linear"}},
  "gradient_clipping": 1.0,
  "fp16": {"enabled": false, "auto_cast": false, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000,
           "hysteresis": 2, "consecutive_hysteresis": false, "min_loss_scale": 1},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 0, "contiguous_gradients": true, "overlap_comm": false, "reduce_scatter": true,
                        "reduce_bucket_size": 5e7, "allgather_bucket_size": 5e7, "sub_group_size": 1e9,
                        "offload_param": {"device": "none"}, "offload_optimizer": {"device": "none", "pin_memory": true}},
  "activation_checkpointing": {"partition_activations": false, "number_checkpoints": null, "profile": false},
  "comms_logger": {"enabled": false, "verbose": false, "prof_all": true, "debug": false},
  "flops_profiler": {"enabled": false, "profile_step": 1, "module_depth": -1, "top_modules": 1, "detailed": true, "output_file": null},
  "tensorboard": {"enabled": false, "output_path": "output/ds_logs/", "job_name": "train_bert"},
  "elasticity": {"enabled": false, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6]},
  "checkpoint": {"tag_validation": "WARN", "load_universal": false},
  "data_types": {"grad_accum_dtype": null}
})";

TEST(DeepSpeedConfig, LoadsUnchanged) {
  Config config = from_json(Json::parse(kDeepSpeedConfig), ".");
  validate(config);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 8);
  EXPECT_DOUBLE_EQ(config.optimizer.params.lr, 0.00015);
  EXPECT_EQ(config.scheduler.type, SchedulerType::WarmupCosineLR);
  EXPECT_EQ(config.scheduler.params.warmup_num_steps, 10);
  EXPECT_TRUE(config.bf16.enabled);
}

TEST(DeepSpeedConfig, KeysWithoutEffectAreNoted) {
  Config config = from_json(Json::parse(kDeepSpeedConfig), ".");
  validate(config);
  std::string all;
  for (const std::string& note : notes(config)) all += note + "\n";
  EXPECT_PRED2(contains, all, "steps_per_print is a DeepSpeed key that does nothing here");
  EXPECT_PRED2(contains, all, "tensorboard is a DeepSpeed section that is switched off");
  EXPECT_PRED2(contains, all, "zero_optimization.overlap_comm does nothing: zero_optimization.stage is 0");
}

// DeepSpeed itself turns its logger on for "enabled": false; here false means off and true is refused.
TEST(DeepSpeedConfig, LoggerIsOffWhenItSaysSo) {
  EXPECT_NO_THROW(load_patched(R"({"comms_logger": {"enabled": false}})"));
  EXPECT_THROW(load_patched(R"({"comms_logger": {"enabled": true}})"), Error);
}

TEST(DeepSpeedConfig, WarmupEndIsTheLearningRate) {
  const Error error =
      error_of([] { load_patched(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001}}})"); });
  EXPECT_PRED2(contains, error.hint(), "optimizer.params.lr");
}

TEST(Notes, NameKeysThatDoNothing) {
  const auto notes_of = [](const char* patch) {
    std::string all;
    for (const std::string& note : notes(load_patched(patch))) all += note + "\n";
    return all;
  };
  EXPECT_PRED2(contains, notes_of(R"({"parallel": {"gather_output": true}})"), "parallel.gather_output does nothing");
  EXPECT_PRED2(contains, notes_of(R"({"model": {"attention_window": 64}})"), "model.attention is dense");
  EXPECT_PRED2(contains, notes_of(R"({"communication": {"bucket_size_mb": 1}})"), "one data-parallel rank");
  EXPECT_EQ(notes_of(R"({"communication": {"bucket_size_mb": 1}, "world_size": 2})"), "");
  EXPECT_EQ(notes_of("{}"), "");
}

TEST(Notes, AreSilentOnDefaultsWrittenOut) {
  Config config = from_json(to_json(load_patched("{}")), ".");
  validate(config);
  EXPECT_TRUE(notes(config).empty()) << notes(config).front();
}

}  // namespace
}  // namespace taut::config
