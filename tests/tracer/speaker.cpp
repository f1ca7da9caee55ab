// Speaks NVTX as its first argument says; the tests run it under a collector. It never asks whether a tool listens.
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "tracer/annotate/annotate.h"

namespace {

using namespace taut::annotate;

nvtxEventAttributes_t attributes(const char* text) {
  nvtxEventAttributes_t a{};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = text;
  return a;
}

/// Nested ranges, marks, a range across threads, names of everything, two domains.
void basics() {
  nvtxNameOsThreadA(static_cast<uint32_t>(syscall(SYS_gettid)), "main thread");
  nvtxRangePushA("outer");
  nvtxRangePushA("inner");
  nvtxRangePop();
  nvtxRangePushW(L"wide \u00e9");
  nvtxRangePop();
  nvtxRangePop();
  nvtxRangePop();  // one too many
  nvtxMarkA("a mark");

  const nvtxDomainHandle_t one = nvtxDomainCreateA("one"), two = nvtxDomainCreateW(L"two");
  auto a = attributes("in one");
  nvtxDomainRangePushEx(one, &a);
  auto b = attributes("in two");
  b.category = 7;
  b.colorType = NVTX_COLOR_ARGB;
  b.color = 0xFF8040C0;
  nvtxDomainRangePushEx(two, &b);
  nvtxDomainRangePop(one);  // domains nest separately
  nvtxDomainRangePop(two);
  nvtxDomainNameCategoryA(two, 7, "seven");
  auto registered = attributes(nullptr);
  registered.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  registered.message.registered = nvtxDomainRegisterStringA(one, "registered text");
  for (int i = 0; i < 3; ++i) {
    nvtxDomainRangePushEx(one, &registered);
    nvtxDomainRangePop(one);
  }

  const nvtxRangeId_t across = nvtxRangeStartA("across threads");
  std::thread([across] { nvtxRangeEnd(across); }).join();
  nvtxRangeStartA("never ended");
}

/// One mark for each payload type.
void payloads() {
  const auto mark = [](const char* text, int32_t type, auto set) {
    auto a = attributes(text);
    a.payloadType = type;
    set(a);
    nvtxMarkEx(&a);
  };
  mark("u64", NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, [](auto& a) { a.payload.ullValue = 18446744073709551615ull; });
  mark("i64", NVTX_PAYLOAD_TYPE_INT64, [](auto& a) { a.payload.llValue = -9007199254740993; });
  mark("f64", NVTX_PAYLOAD_TYPE_DOUBLE, [](auto& a) { a.payload.dValue = 0.1; });
  mark("u32", NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, [](auto& a) { a.payload.uiValue = 4294967295u; });
  mark("i32", NVTX_PAYLOAD_TYPE_INT32, [](auto& a) { a.payload.iValue = -5; });
  mark("f32", NVTX_PAYLOAD_TYPE_FLOAT, [](auto& a) { a.payload.fValue = 0.5f; });
  const auto extended = [&](const char* text, size_t size) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i);
    const nvtxPayloadData_t data{NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5, size, bytes.data()};
    auto a = attributes(text);
    a.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    a.reserved0 = 1;
    a.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
    nvtxMarkEx(&a);
  };
  for (const int size : {0, 1, 16, 17, 80, 81, 128, 1000}) extended(("ext" + std::to_string(size)).c_str(), size);
}

/// What a rank says in `steps` steps; every payload has values of its own.
void train(int rank, int steps) {
  static const Name rank_name("rank"), group_name("tp0"), step_name("step"), micro_name("microbatch F"),
      reduce_name("all_reduce"), gather_name("all_gather"), wait_name("wait"), batch_name("batch_wait"),
      result_name("result"), read_name("read"), use_name("use"), checkpoint_name("checkpoint"),
      expert_name("expert_load"), memory_name("memory");
  mark(rank_name, Rank{rank, 4, 0, 1, 2, 3, 4, 5, -1, 0});
  mark(group_name, Group{77, 2, rank % 2});
  for (int s = 0; s < steps; ++s) {
    Range step(step_name, Step{s, rank, 0});
    {
      Range wait(batch_name, BatchWait{s, rank, 0, 3, 1});
      { Range read(read_name, LoaderWork{s, rank, 2, 8, LoaderPhase::read}); }
      mark(result_name, BatchResult{0xFEDCBA9876543210ull, 4096, 1, 0});
    }
    { Range pass(micro_name, Microbatch{s, rank, 6, 3, 1, 'F', 0}); }
    const auto blocking =
        start_range(reduce_name, Collective{77, 2 * s, 1 << 20, 11, 22, rank, 2, -1, CollectiveOp::all_reduce,
                                            DType::bfloat16, 0, 1000, 2000, Reason::gradient, 0});
    {
      Range wait(wait_name, CollectiveWait{77, 2 * s, rank, -1, CollectiveOp::all_reduce, 0});
      std::thread([blocking] { end_range(blocking); }).join();
    }
    const auto async =
        start_range(gather_name, Collective{77, 2 * s + 1, 512, 33, 44, rank, 2, -1, CollectiveOp::all_gather,
                                            DType::float32, 1, 3000, 128, Reason::parameter, 0});
    end_range(async);
    { Range wait(wait_name, CollectiveWait{77, 2 * s + 1, rank, -1, CollectiveOp::all_gather, 0}); }
    end_range(
        start_range(reduce_name, Collective{77, s, 64, 0, 0, rank, 2, 1 - rank % 2, CollectiveOp::send, DType::int64, 1,
                                            0, 0, Reason::activation, 0}));  // nobody waits for it
    mark(use_name, TensorUse{33, 44, 256, 512, rank, 0});
    mark(expert_name, ExpertLoad{s, 4096, 17, rank, 5, 63, 0});
    { Range save(checkpoint_name, Checkpoint{s, 999, rank, 0}); }
    mark(memory_name, Memory{4000 + s, 3000, 5000, 6000, rank, -1});
    mark(result_name, StepResult{8192, s == 0 ? NAN : 5.5 - s, 1.25});
  }
}

/// Many ranges from many threads at once; every thread's ranges are its own.
void threads(int count, int ranges) {
  std::vector<std::thread> all;
  for (int t = 0; t < count; ++t)
    all.emplace_back([t, ranges] {
      const std::string name = "thread " + std::to_string(t);
      for (int i = 0; i < ranges; ++i) {
        nvtxRangePushA(name.c_str());
        nvtxRangePushA("nested");
        nvtxRangePop();
        nvtxRangePop();
      }
    });
  for (std::thread& thread : all) thread.join();
}

void second_copy(const char* library) {
  nvtxRangePushA("from the first copy");
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  reinterpret_cast<void (*)()>(dlsym(handle, "speak_from_second_copy"))();
  nvtxRangePop();
}

/// A child without exec: it inherits an open range and a registered name, and must get a trace of its own.
void forks() {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("before fork");
  auto a = attributes(nullptr);
  a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  a.message.registered = nvtxDomainRegisterStringA(domain, "name from before");
  nvtxRangePushA("open across the fork");
  const pid_t child = fork();
  if (child == 0) {
    nvtxRangePop();  // the parent's, not ours
    nvtxDomainRangePushEx(domain, &a);
    nvtxRangePushA("only in the child");
    nvtxRangePop();
    nvtxDomainRangePop(domain);
    _exit(0);
  }
  nvtxDomainRangePushEx(domain, &a);
  nvtxDomainRangePop(domain);
  waitpid(child, nullptr, 0);
  nvtxRangePop();
  printf("%d\n", static_cast<int>(child));
}

/// Writes `ranges` ranges, leaves two open and dies as a killed rank does.
void dies(int ranges) {
  static const Name step_name("step");
  nvtxRangePushA("open when killed");
  for (int i = 0; i < ranges; ++i) {
    nvtxRangePushA("written");
    nvtxRangePop();
  }
  new Range(step_name, Step{3, 0, 0});
  raise(SIGKILL);
}

/// Pushes faster than anybody can drain.
void floods(int ranges) {
  nvtxRangePushA("around the flood");
  for (int i = 0; i < ranges; ++i) {
    nvtxRangePushA("flood");
    nvtxRangePop();
  }
  nvtxRangePop();
}

/// Steps with something in each, and something between them; events of a loader thread go with the step.
void windowed(int steps) {
  static const Name step_name("step"), rank_name("rank");
  nvtxMarkA("before");
  for (int s = 0; s < steps; ++s) {
    {
      Range step(step_name, Step{s, 0, 0});
      nvtxMarkA(("in " + std::to_string(s)).c_str());
      std::thread([s] { nvtxMarkA(("thread in " + std::to_string(s)).c_str()); }).join();
      if (s == 0) mark(rank_name, Rank{0, 1, 0, 0, 0, 0, 0, 0, -1, 0});
    }
    nvtxMarkA(("after " + std::to_string(s)).c_str());
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  const auto number = [&](int i, int otherwise) { return count > i ? atoi(arguments[i]) : otherwise; };
  if (what == "basics")
    basics();
  else if (what == "payloads")
    payloads();
  else if (what == "train")
    train(number(2, 0), number(3, 1));
  else if (what == "threads")
    threads(number(2, 4), number(3, 100));
  else if (what == "second_copy" && count > 2)
    second_copy(arguments[2]);
  else if (what == "forks")
    forks();
  else if (what == "dies")
    dies(number(2, 10));
  else if (what == "floods")
    floods(number(2, 1));
  else if (what == "windowed")
    windowed(number(2, 4));
  else
    return 2;
  return 0;
}
