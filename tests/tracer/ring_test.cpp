// The shared-memory ring: order, payloads, wrapping, overflow, a concurrent reader, lanes of ended threads, fork.
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "tests/tracer/scratch.h"
#include "tracer/collect/ring_reader.h"
#include "tracer/collect/ring_writer.h"

namespace taut::collect {
namespace {

class Ring : public testing::Test {
 protected:
  void SetUp() override {
    writer_ = RingWriter::create(scratch_.path().c_str(), nullptr);
    ASSERT_NE(writer_, nullptr);
    reader_ = open(0);
    ASSERT_NE(reader_, nullptr);
  }

  std::unique_ptr<RingReader> open(int file) const {
    return RingReader::open(scratch_ / (std::to_string(getpid()) + "-" + std::to_string(file) + ".ring"));
  }

  test::Scratch scratch_;
  std::unique_ptr<RingWriter> writer_;
  std::unique_ptr<RingReader> reader_;
};

std::vector<unsigned char> pattern(uint64_t seed, size_t size) {
  std::vector<unsigned char> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(seed * 31 + i * 7);
  return bytes;
}

Record record_with(uint64_t id, size_t payload_bytes) {
  Record record{};
  record.kind = Kind::mark;
  record.id = id;
  record.payload_bytes = static_cast<uint16_t>(payload_bytes);
  return record;
}

TEST_F(Ring, GivesBackEveryRecordInOrderWithItsPayload) {
  size_t lane = 99;
  const auto thread = writer_->claim_lane(1234, lane);
  ASSERT_NE(thread, nullptr);
  for (size_t size = 0; size <= kMaxPayloadBytes; ++size) {
    Record record = record_with(size, size);
    ASSERT_TRUE(thread->write(record, pattern(size, size).data(), 0));
  }
  uint64_t expected = 0;
  bool started = false;
  const size_t count = reader_->drain(lane, [&](const Record& record, const unsigned char* payload) {
    if (record.kind == Kind::thread_start) {
      EXPECT_EQ(record.value, 1234u);
      started = true;
      return;
    }
    ASSERT_EQ(record.id, expected);
    const auto want = pattern(expected, expected);
    ASSERT_TRUE(std::equal(want.begin(), want.end(), payload)) << "payload of " << expected << " bytes";
    ++expected;
  });
  EXPECT_TRUE(started);
  EXPECT_EQ(expected, kMaxPayloadBytes + 1);
  EXPECT_EQ(count, kMaxPayloadBytes + 2);
  EXPECT_EQ(reader_->drain(lane, [](const Record&, const unsigned char*) {}), 0u);
}

TEST_F(Ring, CountsWhatDoesNotFitAndKeepsTheOldest) {
  size_t lane;
  const auto thread = writer_->claim_lane(1, lane);
  size_t written = 0;
  for (size_t i = 0; i < 2 * kLaneRecords; ++i) {
    Record record = record_with(i, 0);
    written += thread->write(record, nullptr, 0);
  }
  EXPECT_EQ(written, kLaneRecords - 1);  // the thread's start takes one
  EXPECT_EQ(reader_->dropped(lane), 2 * kLaneRecords - written);
  uint64_t next = 0;
  reader_->drain(lane, [&](const Record& record, const unsigned char*) {
    if (record.kind == Kind::mark) {
      EXPECT_EQ(record.id, next++);
    }
  });
  EXPECT_EQ(next, written);
  Record record = record_with(1, 0);
  EXPECT_TRUE(thread->write(record, nullptr, 0)) << "there is room again";
}

TEST_F(Ring, KeepsSlotsForRangeEnds) {
  size_t lane;
  const auto thread = writer_->claim_lane(1, lane);
  Record record = record_with(0, 0);
  while (thread->write(record, nullptr, kPopReserve)) {
  }
  for (size_t i = 0; i < kPopReserve; ++i) ASSERT_TRUE(thread->write(record, nullptr, 0)) << i;
  EXPECT_FALSE(thread->write(record, nullptr, 0));
}

TEST_F(Ring, LosesNothingWhileItIsDrainedConcurrently) {
  size_t lane;
  const auto thread = writer_->claim_lane(1, lane);
  constexpr uint64_t kRecords = 400'000;
  std::atomic<bool> done{false};
  std::thread producer([&] {
    std::mt19937_64 random(7);
    for (uint64_t i = 0; i < kRecords; ++i) {
      const size_t size = random() % (kMaxPayloadBytes + 1);
      const auto bytes = pattern(i, size);
      Record record = record_with(i, size);
      while (!thread->write(record, bytes.data(), 0)) std::this_thread::yield();
    }
    done = true;
  });
  std::mt19937_64 random(7);
  uint64_t expected = 0, wrong = 0;
  const auto take = [&](const Record& record, const unsigned char* payload) {
    if (record.kind != Kind::mark) return;
    const size_t size = random() % (kMaxPayloadBytes + 1);
    const auto want = pattern(expected, size);
    wrong += record.id != expected || record.payload_bytes != size || !std::equal(want.begin(), want.end(), payload);
    ++expected;
  };
  while (!done) reader_->drain(lane, take);
  producer.join();
  reader_->drain(lane, take);
  EXPECT_EQ(expected, kRecords);
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Ring, ReusesTheLaneOfAThreadThatEnded) {
  size_t first, second, third;
  const auto a = writer_->claim_lane(1, first);
  const auto b = writer_->claim_lane(2, second);
  EXPECT_NE(first, second);
  writer_->release_lane(first);
  const auto c = writer_->claim_lane(3, third);
  EXPECT_EQ(third, first);
  std::vector<uint64_t> tids;
  reader_->drain(third, [&](const Record& record, const unsigned char*) { tids.push_back(record.value); });
  EXPECT_EQ(tids, (std::vector<uint64_t>{1, 3}));
}

TEST_F(Ring, HasOneLaneAThreadUpToTheLimit) {
  std::vector<std::unique_ptr<LaneWriter>> lanes;
  size_t lane;
  for (uint32_t i = 0; i < 8; ++i) lanes.push_back(writer_->claim_lane(i + 1, lane));
  EXPECT_EQ(lane, 7u);
  EXPECT_EQ(reader_->lane_count(), 8u);
}

TEST_F(Ring, InternsNamesOnce) {
  const uint32_t a = writer_->intern("aten::mm"), b = writer_->intern("aten::add"), again = writer_->intern("aten::mm");
  EXPECT_EQ(a, again);
  EXPECT_NE(a, b);
  EXPECT_EQ(reader_->name(a), "aten::mm");
  EXPECT_EQ(reader_->name(b), "aten::add");
  EXPECT_EQ(reader_->name(0), "?");
  EXPECT_EQ(reader_->name(b + 1000), "?");
  EXPECT_EQ(writer_->intern(""), 0u);
}

TEST_F(Ring, CountsNamesThatTheAreaHasNoRoomFor) {
  std::string name(1 << 20, 'x');
  size_t kept = 0;
  for (int i = 0; i < 20; ++i) {
    name[0] = static_cast<char>('a' + i);
    kept += writer_->intern(name) != 0;
  }
  EXPECT_EQ(kept, kStringsBytes / name.size() - 1);
  EXPECT_EQ(reader_->lost_names(), 20 - kept);
}

TEST_F(Ring, KeepsNamesAndDomainsAcrossFork) {
  bool created = false;
  const uint32_t name = writer_->intern("before");
  const uint16_t domain = writer_->domain("a domain", created);
  EXPECT_TRUE(created);
  const auto child = RingWriter::create(scratch_.path().c_str(), writer_.get());
  ASSERT_NE(child, nullptr);
  EXPECT_EQ(child->intern("before"), name);
  EXPECT_EQ(child->domain("a domain", created), domain);
  EXPECT_FALSE(created);
  EXPECT_NE(child->intern("after"), name);
  const auto file = open(1);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->name(name), "before");
  EXPECT_EQ(file->domain_name(domain), "a domain");
}

TEST_F(Ring, KnowsWhetherItsWriterLives) {
  EXPECT_FALSE(reader_->writer_gone());
  writer_.reset();
  EXPECT_TRUE(reader_->writer_gone());
}

TEST_F(Ring, IgnoresFilesThatAreNotRings) {
  const std::string path = scratch_ / "other.ring";
  {
    std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "w"), fclose);
    fputs("hello", file.get());
  }
  EXPECT_EQ(RingReader::open(path), nullptr);
  std::filesystem::resize_file(path, kStringsOffset);
  EXPECT_EQ(RingReader::open(path), nullptr);
  EXPECT_EQ(RingReader::open(scratch_ / "none.ring"), nullptr);
}

}  // namespace
}  // namespace taut::collect
