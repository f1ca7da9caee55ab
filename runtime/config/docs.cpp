#include "runtime/config/docs.h"

#include "runtime/config/keys.h"
#include "runtime/config/load.h"
#include "runtime/config/not_yet.h"

namespace taut::config {
namespace {

constexpr const char* kIntroduction = R"(# Training config: every key

<!-- Generated from the key table (runtime/config/keys.cpp); TAUT_UPDATE_DOCS=1 with the config tests rewrites it. -->

A config is a JSON file. Lines that begin with `//` are comments; trailing commas and duplicate keys are errors. A dot in
a key below stands for nesting: `model.hidden_size` is `{"model": {"hidden_size": …}}`. Integers may be written as `5e7`.
Relative paths are relative to the config's folder. `taut train CONFIG --print-config` prints the effective config.

`train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × data-parallel size`; any one of the
three may be left out, and `train_batch_size` or the micro batch alone means one accumulation step.

The column *from* says whose key it is: **DeepSpeed** and **Megatron** keys mean what they mean there, **extension** keys
are Taut's own. A DeepSpeed key that Taut does not implement (listed at the end) is accepted with a value that changes
nothing and refused with any other; every other unknown key is an error.
)";

const char* origin_name(Origin origin) {
  switch (origin) {
    case Origin::deepspeed:
      return "DeepSpeed";
    case Origin::megatron:
      return "Megatron";
    case Origin::extension:
      return "extension";
  }
  return "";
}

std::string default_text(const Key& key, const Json& defaults) {
  if (key.left_out != nullptr) return key.left_out;
  std::string pointer = "/" + std::string(key.path);
  for (char& c : pointer) c = c == '.' ? '/' : c;
  return "`" + defaults[Json::json_pointer(pointer)].dump() + "`";
}

std::string top_section(const std::string& path) {
  const size_t dot = path.find('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

}  // namespace

std::string config_page() {
  const Json defaults = to_json(Config{});
  std::string page = kIntroduction;
  std::string section = "?";
  for (const Key& key : keys()) {
    if (top_section(key.path) != section) {
      section = top_section(key.path);
      page += "\n## " + (section.empty() ? std::string("Batch and run length") : "`" + section + "`") + "\n";
      page += "| key | value | default | from | meaning |\n|---|---|---|---|---|\n";
    }
    page += "| `" + std::string(key.path) + "` | " + describe_rule(key) + " | " + default_text(key, defaults) + " | " +
            origin_name(key.origin) + " | " + key.doc + " |\n";
  }
  page += "\n## Not supported yet\nThese values are refused for now.\n\n| key | values | instead |\n|---|---|---|\n";
  for (const NotYet& feature : not_yet()) {
    page += "| `" + std::string(feature.key) + "` | " + feature.values + " | " + feature.instead + " |\n";
  }
  page += "\n## DeepSpeed keys without effect\n| key | accepted values | otherwise |\n|---|---|---|\n";
  for (const DeepSpeedKey& key : deepspeed_keys()) {
    std::string values;
    for (const char* value : key.harmless) values += (values.empty() ? "`" : ", `") + std::string(value) + "`";
    page += "| `" + std::string(key.path) + "` | " + (values.empty() ? "none" : values) + " | " + key.instead + " |\n";
  }
  return page;
}

}  // namespace taut::config
