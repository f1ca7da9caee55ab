// What the loader says in NVTX, as a tool hears it. The tool is this test: NVTX calls its static injection hook.
#include "tests/data/fixture.h"
#include "tracer/annotate/annotate.h"

#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Heard {
  char kind;  // '<' push, '>' pop, '!' mark
  std::string name;
  uint64_t schema = 0;
  std::vector<char> payload;
};
std::vector<Heard> heard;
std::vector<std::string> names;

void hear(char kind, const nvtxEventAttributes_t* event) {
  const auto* data = reinterpret_cast<const nvtxPayloadData_t*>(event->payload.ullValue);
  const auto* bytes = static_cast<const char*>(data->payload);
  heard.push_back({kind, names[reinterpret_cast<uintptr_t>(event->message.registered) - 1], data->schemaId,
                   std::vector<char>(bytes, bytes + data->size)});
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  hear('<', event);
  return 0;
}
int pop(nvtxDomainHandle_t) {
  heard.push_back({'>', "", 0, {}});
  return 0;
}
void mark(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  hear('!', event);
}
nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  names.push_back(text);
  return reinterpret_cast<nvtxStringHandle_t>(names.size());
}

int attach(NvtxGetExportTableFunc_t get_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  *table[NVTX_CBID_CORE2_DomainMarkEx] = reinterpret_cast<NvtxFunctionPointer>(mark);
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = reinterpret_cast<NvtxFunctionPointer>(register_string);
  return 1;
}

template <class Payload>
Payload payload(const Heard& event) {
  EXPECT_EQ(event.schema, static_cast<uint64_t>(Payload::kSchema));
  EXPECT_EQ(event.payload.size(), sizeof(Payload));
  Payload payload{};
  std::memcpy(&payload, event.payload.data(), std::min(sizeof payload, event.payload.size()));
  return payload;
}

std::string sequence() {
  std::string text;
  for (const Heard& event : heard) text += event.kind + event.name + ' ';
  return text;
}

}  // namespace

// Before the first NVTX call, which looks here.
const bool attached = [] {
  InitializeInjectionNvtx2_fnptr = attach;
  return true;
}();

namespace taut::data {
namespace {

TEST(Annotation, ShowsAnInlineBatchInsideTheWait) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)), 2);
  config.data.num_workers = 0;
  Loader loader(config, {.dp_rank = 1, .rank = 6}, 1);
  loader.next();
  heard.clear();
  const Batch batch = loader.next();
  ASSERT_EQ(sequence(), "<batch_wait <read > <tokenize > <pack > !batch_result > ");
  const auto wait = payload<annotate::BatchWait>(heard[0]);
  EXPECT_EQ(wait.step, 1);
  EXPECT_EQ(wait.microbatch, 1);
  EXPECT_EQ(wait.rank, 6);
  EXPECT_EQ(wait.workers, 0);
  EXPECT_EQ(wait.queue_depth, 0);
  const auto tokenize = payload<annotate::LoaderWork>(heard[3]);
  EXPECT_EQ(tokenize.batch, 5);  // step 1 × 4 microbatches + 1
  EXPECT_EQ(tokenize.rank, 6);
  EXPECT_EQ(tokenize.worker, -1);
  EXPECT_EQ(tokenize.samples, 2);
  EXPECT_EQ(tokenize.phase, annotate::LoaderPhase::tokenize);
  const auto result = payload<annotate::BatchResult>(heard[7]);
  EXPECT_EQ(result.sample_hash, batch.sample_hash);
  EXPECT_EQ(result.bytes, 2 * 17 * 8);
  EXPECT_EQ(result.worker, -1);
}

TEST(Annotation, TellsHowManyBatchesWereReady) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 3;
  config.data.prefetch_factor = 2;
  config.train_steps = 100;
  Loader loader(config, {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (loader.queue_depth() < 6 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  heard.clear();
  for (int i = 0; i < 2; ++i) loader.next();
  ASSERT_EQ(sequence(), "<batch_wait !batch_result > <batch_wait !batch_result > ");
  EXPECT_EQ(payload<annotate::BatchWait>(heard[0]).queue_depth, 6);
  EXPECT_EQ(payload<annotate::BatchWait>(heard[0]).workers, 3);
  EXPECT_GE(payload<annotate::BatchWait>(heard[3]).queue_depth, 5);
  EXPECT_EQ(payload<annotate::BatchResult>(heard[4]).worker, 1);
}

}  // namespace
}  // namespace taut::data
