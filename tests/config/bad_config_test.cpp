// Wrong configs: each must be refused, naming the key and what to do.
#include <map>
#include <regex>

#include "runtime/config/keys.h"
#include "tests/config/sample.h"

namespace taut::config {
namespace {

struct BadConfig {
  const char* name;
  const char* patch;       // RFC 7386, on small_config()
  const char* in_message;  // key path and value
  const char* in_hint;
};

const BadConfig kBadConfigs[] = {
    // Misspelt, misplaced and foreign names, at every level.
    {"TopLevelTypo", R"({"train_bach_size": 3})", "train_bach_size", "train_batch_size"},
    {"MicroBatchWithoutSuffix", R"({"train_micro_batch_size": 2})", "train_micro_batch_size",
     "train_micro_batch_size_per_gpu"},
    {"SectionTypo", R"({"modell": {"hidden_size": 3}})", "modell", "did you mean model?"},
    {"NestedTypo", R"({"model": {"hiden_size": 3}})", "model.hiden_size", "did you mean model.hidden_size?"},
    {"ThirdLevelTypo", R"({"optimizer": {"params": {"weight_deacy": 0.1}}})", "optimizer.params.weight_deacy",
     "optimizer.params.weight_decay"},
    {"OffloadTypo", R"({"zero_optimization": {"offload_optimizer": {"devise": "cpu"}}})",
     "zero_optimization.offload_optimizer.devise", "zero_optimization.offload_optimizer.device"},
    {"CheckpointingTypo", R"({"activation_checkpointing": {"partition_activation": true}})",
     "activation_checkpointing.partition_activation", "activation_checkpointing has the keys mode"},
    {"BucketTypo", R"({"zero_optimization": {"reduce_bucket_sizes": 5e7}})", "zero_optimization.reduce_bucket_sizes",
     "zero_optimization.reduce_bucket_size"},
    {"Dashes", R"({"parallel": {"tensor-parallel-size": 2}})", "parallel.tensor-parallel-size",
     "parallel.tensor_parallel_size"},
    {"MegatronFlag", R"({"parallel": {"tensor_model_parallel_size": 2}})", "parallel.tensor_model_parallel_size",
     "parallel.tensor_parallel_size"},
    {"KeyInTheWrongSection", R"({"num_workers": 2})", "num_workers", "data.num_workers"},
    {"TrainerName", R"({"learning_rate": 1e-3})", "learning_rate", "optimizer.params.lr"},
    {"GradientClip", R"({"clip_grad": 1.0})", "clip_grad", "gradient_clipping"},
    {"DottedKey", R"({"model.hidden_size": 64})", "model.hidden_size", "nested"},
    {"Nonsense", R"({"zzzzzzzzzzzzzzzzzz": 1})", "zzzzzzzzzzzzzzzzzz", "keys at the top are model, data"},
    // Wrong types.
    {"TextForInteger", R"({"model": {"num_layers": "4"}})", "model.num_layers is \"4\"", "an integer"},
    {"FractionForInteger", R"({"model": {"num_layers": 4.5}})", "model.num_layers is 4.5", "an integer"},
    {"BooleanForInteger", R"({"train_steps": true})", "train_steps is true", "an integer"},
    {"IntegerForBoolean", R"({"bf16": {"enabled": 1}})", "bf16.enabled is 1", "true or false"},
    {"TextForBoolean", R"({"data": {"shuffle": "false"}})", "data.shuffle is \"false\"", "true or false"},
    {"ScalarForSection", R"({"bf16": true})", "bf16 is true", "an object"},
    {"OneBeta", R"({"optimizer": {"params": {"betas": [0.9]}}})", "optimizer.params.betas is [0.9]", "two numbers"},
    {"TraceStepsScalar", R"({"trace": {"steps": 5}})", "trace.steps is 5", "two integers"},
    {"LayersOfText", R"({"parallel": {"pipeline_layers": ["2", 2]}})", "parallel.pipeline_layers",
     "a list of integers"},
    {"HugeInteger", R"({"seed": 18446744073709551615})", "seed is 18446744073709551615", "an integer"},
    {"AutoValue", R"({"gradient_accumulation_steps": "auto"})", "gradient_accumulation_steps is \"auto\"", "\"auto\""},
    // Out of range.
    {"NegativeLayers", R"({"model": {"num_layers": -1}})", "model.num_layers is -1", "1 to"},
    {"ZeroBatch", R"({"train_batch_size": 0})", "train_batch_size is 0", "1 to"},
    {"NoSteps", R"({"train_steps": 0})", "train_steps is 0", "1 or more"},
    {"StageFour", R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage is 4", "0 to 3"},
    {"NegativeRate", R"({"optimizer": {"params": {"lr": -1e-3}}})", "optimizer.params.lr is -0.001", "0 or more"},
    {"BetaOne", R"({"optimizer": {"params": {"betas": [0.9, 1.0]}}})", "optimizer.params.betas", "two numbers, 0 to"},
    {"NegativeLatency", R"({"data": {"read_latency_ms": -1}})", "data.read_latency_ms is -1", "0 to"},
    {"ZeroBucket", R"({"communication": {"bucket_size_mb": 0}})", "communication.bucket_size_mb is 0",
     "above 0, or \"auto\""},
    {"UnknownActivation", R"({"model": {"activation": "gelu_new"}})", "model.activation is \"gelu_new\"",
     "did you mean \"gelu\"?"},
    {"PlainAdam", R"({"optimizer": {"type": "Adam"}})", "optimizer.type is \"Adam\"", "did you mean \"AdamW\"?"},
    {"ScheduleCase", R"({"parallel": {"pipeline_schedule": "1F1B"}})", "parallel.pipeline_schedule is \"1F1B\"",
     "\"1f1b\""},
    // What keys mean together.
    {"BothPrecisions", R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})", "bf16.enabled and fp16.enabled",
     "fp16.enabled to false"},
    {"HeadsDoNotDivideWidth", R"({"model": {"hidden_size": 60}})", "model.num_attention_heads is 8", "64"},
    {"OddHeadSize", R"({"model": {"hidden_size": 24}})", "rope", "multiple of 16"},
    {"GroupsDoNotDivideHeads", R"({"model": {"num_query_groups": 3}})", "model.num_query_groups is 3",
     "divisor such as 2"},
    {"TensorParallelHeads", R"({"parallel": {"tensor_parallel_size": 3}})",
     "parallel.tensor_parallel_size is 3, which does not divide model.num_attention_heads = 8", "2"},
    {"TensorParallelGroups", R"({"parallel": {"tensor_parallel_size": 8}})", "model.num_query_groups = 4",
     "divisor such as 4"},
    {"TensorParallelFfn", R"({"model": {"ffn_hidden_size": 250}, "parallel": {"tensor_parallel_size": 4}})",
     "model.ffn_hidden_size = 250", "252"},
    {"TensorParallelVocabulary", R"({"model": {"vocab_size": 511}, "parallel": {"tensor_parallel_size": 2}})",
     "model.vocab_size = 511", "512"},
    {"MoreStagesThanLayers", R"({"parallel": {"pipeline_parallel_size": 5}})", "parallel.pipeline_parallel_size is 5",
     "4 or less"},
    {"LayerListLength", R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_layers": [2, 1, 1]}})",
     "parallel.pipeline_layers has 3 entries", "one number of layers per stage"},
    {"LayerListSum", R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_layers": [2, 3]}})", "2 + 3", "sum to 4"},
    {"WorldSize", R"({"world_size": 3, "parallel": {"tensor_parallel_size": 2}})", "world_size is 3", "4 ranks"},
    {"ByteVocabulary", R"({"data": {"mock": false, "path": "x"}, "model": {"vocab_size": 256}})",
     "model.vocab_size is 256", "257"},
    {"NoData", R"({"data": {"mock": false}})", "data.path is not set", "data.mock"},
    {"Tokenizer", R"({"data": {"tokenizer": "tiktoken"}})", "data.tokenizer is \"tiktoken\"", "sentencepiece:FILE"},
    {"TraceStepsEmpty", R"({"trace": {"steps": [5, 5]}})", "trace.steps is [5, 5]", "first < last"},
    {"CheckpointWithoutFolder", R"({"checkpoint": {"interval_steps": 5}})", "checkpoint.interval_steps",
     "checkpoint.dir"},
    {"TooFewRanks", R"({"elastic": {"min_ranks": 2}})", "elastic.min_ranks is 2", "1 or less"},
    {"WarmupTooLong", R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 500}}})",
     "scheduler.params.warmup_num_steps is 500", "train_steps"},
    {"ContextParallelSequence", R"({"model": {"seq_length": 36}, "parallel": {"context_parallel_size": 4}})",
     "parallel.context_parallel_size is 4: each rank takes two of 8 chunks", "such as 40"},
    {"ContextParallelOddSequence", R"({"model": {"seq_length": 33}, "parallel": {"context_parallel_size": 2}})",
     "model.seq_length = 33", "such as 36"},
    {"SequenceParallelSequence",
     R"({"model": {"seq_length": 30}, "parallel": {"tensor_parallel_size": 4, "sequence_parallel": true}})",
     "= 30 tokens into parallel.tensor_parallel_size = 4 parts", "such as 32"},
    {"SequenceParallelWithContext",
     R"({"model": {"seq_length": 18},
         "parallel": {"tensor_parallel_size": 4, "context_parallel_size": 3, "sequence_parallel": true}})",
     "= 6 tokens into", "such as 24"},
    {"SequenceParallelGathers",
     R"({"parallel": {"tensor_parallel_size": 2, "sequence_parallel": true, "gather_output": true}})",
     "parallel.sequence_parallel and parallel.gather_output", "set parallel.gather_output to false"},
    {"VirtualStagesAlone", R"({"parallel": {"virtual_pipeline_stages": 2}})", "no pipeline to interleave",
     "set parallel.virtual_pipeline_stages to 1"},
    {"VirtualStagesOf1f1b", R"({"parallel": {"pipeline_parallel_size": 2, "virtual_pipeline_stages": 2}})",
     "parallel.pipeline_schedule \"1f1b\" runs one chunk a stage", "\"interleaved_1f1b\""},
    {"InterleavedOneChunk", R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved_1f1b"}})",
     "needs 2 chunks a stage or more", "set parallel.virtual_pipeline_stages to 2"},
    {"InterleavedLayers",
     R"({"model": {"num_layers": 6}, "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved_1f1b",
         "virtual_pipeline_stages": 2}})",
     "model.num_layers is 6, which does not divide into", "a multiple such as 8"},
    {"InterleavedLayerList",
     R"({"parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved_1f1b",
         "virtual_pipeline_stages": 2, "pipeline_layers": [2, 2]}})",
     "parallel.pipeline_layers is set", "set parallel.pipeline_layers to null"},
    {"InterleavedTooFewMicrobatches",
     R"({"train_batch_size": 2, "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved_1f1b",
         "virtual_pipeline_stages": 2}})",
     "gradient_accumulation_steps is 1", "set gradient_accumulation_steps to 2 and train_batch_size to 4"},
    {"InterleavedMicrobatches",
     R"({"train_batch_size": 14, "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "interleaved_1f1b",
         "virtual_pipeline_stages": 2}})",
     "a multiple of parallel.pipeline_parallel_size = 2 microbatches", "set gradient_accumulation_steps to 8"},
    {"ZeroBubbleRecomputes",
     R"({"activation_checkpointing": {"mode": "full"},
         "parallel": {"pipeline_parallel_size": 2, "pipeline_schedule": "zero_bubble"}})",
     "activation_checkpointing.mode is \"full\"", "\"selective\""},
    {"ExpertParallelWithoutExperts", R"({"world_size": 2, "parallel": {"expert_parallel_size": 2}})",
     "model.num_experts is 0", "set parallel.expert_parallel_size to 1"},
    {"PlacementWithoutExperts", R"({"parallel": {"expert_placement": [[0]]}})", "parallel.expert_placement is set",
     "null"},
    {"ExpertsDoNotDivide", R"({"world_size": 4, "model": {"num_experts": 6}, "parallel": {"expert_parallel_size": 4}})",
     "does not divide model.num_experts = 6", "set parallel.expert_parallel_size to 2"},
    {"ExpertParallelRanks",
     R"({"world_size": 2, "model": {"num_experts": 6}, "parallel": {"expert_parallel_size": 3}})",
     "data × context parallel size = 2 × 1 = 2", "set parallel.expert_parallel_size to 2"},
    {"ExpertParallelRanksWithContext",
     R"({"world_size": 4, "model": {"num_experts": 6}, "parallel": {"expert_parallel_size": 3,
         "context_parallel_size": 2}})",
     "data × context parallel size = 2 × 2 = 4", "make that a multiple of 3"},
    {"MoreExpertsATokenThanThereAre", R"({"model": {"num_experts": 2, "moe_router_topk": 3}})",
     "model.moe_router_topk is 3", "set model.moe_router_topk to 2"},
    {"PlacementLists",
     R"({"world_size": 2, "model": {"num_experts": 4},
         "parallel": {"expert_parallel_size": 2, "expert_placement": [[0, 1, 2, 3]]}})",
     "has 1 lists for parallel.expert_parallel_size = 2", "null"},
    {"PlacementTwice",
     R"({"world_size": 2, "model": {"num_experts": 4},
         "parallel": {"expert_parallel_size": 2, "expert_placement": [[0, 1], [1, 2]]}})",
     "parallel.expert_placement[1] names expert 1, which is placed already", "each of the experts 0 to 3 once"},
    {"PlacementLeavesOut",
     R"({"world_size": 2, "model": {"num_experts": 4},
         "parallel": {"expert_parallel_size": 2, "expert_placement": [[0, 1], [2]]}})",
     "leaves out expert 3", "null"},
    {"PlacementUnknown",
     R"({"world_size": 2, "model": {"num_experts": 4},
         "parallel": {"expert_parallel_size": 2, "expert_placement": [[0, 1], [2, 4]]}})",
     "names expert 4, but model.num_experts is 4", "null"},
    {"PlacementEmpty",
     R"({"world_size": 2, "model": {"num_experts": 2},
         "parallel": {"expert_parallel_size": 2, "expert_placement": [[0, 1], []]}})",
     "parallel.expert_placement[1] is empty", "null"},
    {"LossScale", R"({"fp16": {"enabled": true, "initial_scale_power": 2, "min_loss_scale": 8}})",
     "fp16.min_loss_scale is 8", "set fp16.initial_scale_power to 3"},
    {"LossScalePower", R"({"fp16": {"enabled": true, "initial_scale_power": 127}})", "fp16.initial_scale_power is 127",
     "0 to 126"},
    {"LossScaleWindow", R"({"fp16": {"loss_scale_window": 0}})", "fp16.loss_scale_window is 0", "1 or more"},
    {"Window", R"({"model": {"attention_window": 0}})", "model.attention_window is 0", "1 to"},
    {"Dropout", R"({"model": {"dropout": 1.0}})", "model.dropout is 1", "0 to"},
    // Not yet in the runtime.
    {"Compression", R"({"communication": {"gradient_compression": "int8"}})", "int8", "\"none\""},
    {"Lion", R"({"optimizer": {"type": "Lion"}})", "Lion", "AdamW"},
    {"Snapshots", R"({"checkpoint": {"dir": "c", "snapshot_interval_steps": 5}})", "checkpoint.snapshot_interval_steps",
     "to 0"},
    // DeepSpeed features that are on.
    {"WallClock", R"({"wall_clock_breakdown": true})", "wall_clock_breakdown is true", "taut train --trace"},
    {"NvmeOffload", R"({"zero_optimization": {"offload_param": {"device": "nvme"}}})",
     "zero_optimization.offload_param.device", "none"},
    {"CpuCheckpointing", R"({"activation_checkpointing": {"cpu_checkpointing": true}})",
     "activation_checkpointing.cpu_checkpointing", "remove it"},
    {"CommsLogger", R"({"comms_logger": {"enabled": true}})", "comms_logger.enabled is true", "taut"},
    {"QuantizedGradients", R"({"zero_optimization": {"zero_quantized_gradients": true}})", "zero_quantized_gradients",
     "gradient_compression"},
    {"AutoTp", R"({"tensor_parallel": {"autotp_size": 4}})", "tensor_parallel.autotp_size",
     "parallel.tensor_parallel_size"},
    {"DeepSpeedTypo", R"({"comms_logger": {"enabeld": false}})", "comms_logger.enabeld", ""},
};

class BadConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedWithKeyAndHint) {
  const BadConfig& bad = GetParam();
  const Error error = error_of([&] { load_patched(bad.patch); });
  EXPECT_PRED2(contains, error.what(), bad.in_message);
  EXPECT_PRED2(contains, error.hint(), bad.in_hint);
  EXPECT_FALSE(error.hint().empty());
  EXPECT_EQ(error.exit_code(), 1);
}

/// What a hint tells the reader to set: alternatives are parted by ", or", keys set together by " and ".
std::vector<std::map<std::string, std::string>> suggested(const std::string& hint) {
  static const std::regex assignment(
      R"(([a-z_0-9]+(?:\.[a-z_0-9]+)*) to (?:a (?:divisor|multiple)(?: of [0-9]+)? such as )?("[^"]*"|[0-9.]+|null|true|false)(?![^,]*(?:more|less)))");
  std::vector<std::map<std::string, std::string>> alternatives;
  for (size_t start = 0; start < hint.size();) {
    const size_t end = std::min(hint.find(", or ", start), hint.size());
    const std::string part = hint.substr(start, end - start);
    std::map<std::string, std::string> set;
    for (std::sregex_iterator match(part.begin(), part.end(), assignment), none; match != none; ++match) {
      if (find_key((*match)[1]) != nullptr) set[(*match)[1]] = (*match)[2];
    }
    if (!set.empty()) alternatives.push_back(set);
    start = end + 5;
  }
  return alternatives;
}

// A neighbour that is itself refused would send its reader in circles.
TEST(Hints, SuggestConfigsThatAreValid) {
  size_t tried = 0;
  for (const BadConfig& bad : kBadConfigs) {
    const Json json = merge_patch(small_config(), Json::parse(bad.patch));
    Config config;
    try {
      config = from_json(json, "/configs");
    } catch (const Error&) {
      continue;  // not a rule's: wrong by itself
    }
    const Error error = error_of([&] { validate(config); });
    for (const auto& alternative : suggested(error.hint())) {
      Json changed = json;
      std::string what;
      for (const auto& [key, value] : alternative) {
        apply_override(changed, key + "=" + value);
        what += " " + key + "=" + value;
      }
      ++tried;
      Config again = from_json(changed, "/configs");
      EXPECT_NO_THROW(validate(again)) << bad.name << ": " << error.what() << "\n" << error.hint() << "\ntried" << what;
    }
  }
  EXPECT_GE(tried, 50u);
}

INSTANTIATE_TEST_SUITE_P(Config, BadConfigs, testing::ValuesIn(kBadConfigs),
                         [](const auto& info) { return std::string(info.param.name); });

// A merge patch cannot write null, so these configs are whole.
TEST(BadNull, IsRefusedWhereItMeansNothing) {
  Json json = small_config();
  json["model"]["num_layers"] = nullptr;
  const Error error = error_of([&] { from_json(json, "."); });
  EXPECT_PRED2(contains, error.what(), "model.num_layers is null");
}

TEST(BadNull, IsAllowedWhereItMeansNone) {
  Json json = small_config();
  json["model"]["moe_capacity_factor"] = nullptr;
  json["parallel"]["pipeline_layers"] = nullptr;
  json["trace"]["steps"] = nullptr;
  EXPECT_NO_THROW(from_json(json, "."));
}

TEST(BadConfig, ThatIsNoObjectIsRefused) {
  for (const char* text : {"[]", "3", "null", "\"config\""}) {
    EXPECT_PRED2(contains, error_of([&] { from_json(Json::parse(text), "."); }).hint(), "JSON object") << text;
  }
}

TEST(GoodConfig, BothValuesOfEveryBooleanAreRead) {
  EXPECT_TRUE(load_patched(R"({"bf16": {"enabled": true}})").bf16.enabled);
  EXPECT_FALSE(load_patched(R"({"bf16": {"enabled": false}})").bf16.enabled);
  EXPECT_FALSE(load_patched(R"({"data": {"shared_memory": false}})").data.shared_memory);
  EXPECT_FALSE(load_patched(R"({"model": {"tie_embeddings": false}})").model.tie_embeddings);
  EXPECT_FALSE(load_patched(R"({"communication": {"overlap_grad_reduce": false}})").communication.overlap_grad_reduce);
  EXPECT_TRUE(load_patched(R"({"parallel": {"gather_output": true}})").parallel.gather_output);
}

TEST(GoodConfig, WholeNumbersMayBeWrittenWithAnExponent) {
  const Config config = load_patched(R"({"zero_optimization": {"reduce_bucket_size": 5e7}, "train_steps": 2.0})");
  EXPECT_EQ(config.zero_optimization.reduce_bucket_size, 50'000'000);
  EXPECT_EQ(config.train_steps, 2);
}

TEST(GoodConfig, BucketSizeIsANumberOrAuto) {
  EXPECT_EQ(load_patched(R"({"communication": {"bucket_size_mb": 0.5}})").communication.bucket_size_mb, 0.5);
  EXPECT_EQ(load_patched(R"({"communication": {"bucket_size_mb": "auto"}})").communication.bucket_size_mb,
            std::nullopt);
}

}  // namespace
}  // namespace taut::config
