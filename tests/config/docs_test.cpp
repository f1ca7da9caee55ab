// docs/config.md lists every key; it is generated and must be fresh.
#include "runtime/config/docs.h"

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/config/keys.h"
#include "runtime/config/not_yet.h"
#include "tests/config/sample.h"

namespace taut::config {
namespace {

TEST(ConfigPage, IsFresh) {
  const std::string path = std::string(TAUT_SOURCE_DIR) + "/docs/config.md";
  if (std::getenv("TAUT_UPDATE_DOCS") != nullptr) std::ofstream(path) << config_page();
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_TRUE(text.str() == config_page()) << "stale: run this test with TAUT_UPDATE_DOCS=1 to rewrite " << path;
}

TEST(KeyTable, HasEveryKeyOnceWithAMeaning) {
  std::set<std::string> seen;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert(key.path).second) << key.path;
    EXPECT_GT(std::string(key.doc).size(), 8u) << key.path;
    EXPECT_EQ(find_deepspeed_key(key.path), nullptr) << key.path << " is also listed as not implemented";
    EXPECT_FALSE(is_section(key.path)) << key.path;
  }
}

// A value read under a key comes out under that key: each entry's member is its own.
TEST(KeyTable, EntriesPointAtDifferentMembers) {
  const Json before = to_json(Config{});
  for (const Key& key : keys()) {
    const auto* integer = std::get_if<int64_t* (*)(Config&)>(&key.member);
    if (integer == nullptr) continue;
    Config config;
    *(*integer)(config) = 7;
    const auto changes = diff(before, to_json(config));
    ASSERT_EQ(changes.size(), 1u) << key.path;
    EXPECT_EQ(changes[0].key, key.path);
  }
}

TEST(KeyTable, ValuesNotSupportedYetBelongToKeys) {
  for (const NotYet& feature : not_yet()) {
    EXPECT_NE(find_key(feature.key), nullptr) << feature.key;
    EXPECT_FALSE(feature.used(Config{})) << feature.key << " refuses its default";
  }
}

TEST(KeyTable, HarmlessDeepSpeedValuesAreJson) {
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    for (const char* value : key.harmless) EXPECT_TRUE(Json::accept(value)) << key.path << ": " << value;
    EXPECT_GT(std::string(key.instead).size(), 4u) << key.path;
  }
}

}  // namespace
}  // namespace taut::config
