#include "runtime/data/gzip.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "taut.h"

namespace taut::data {

void read_gzip(const std::string& path, std::string& text) {
  errno = 0;
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rbe"), gzclose_r);
  if (!file) throw Error("cannot read '" + path + "': " + std::strerror(errno), "check the file and its permissions");
  constexpr unsigned kBlock = 1 << 20;
  gzbuffer(file.get(), 1 << 17);
  if (gzdirect(file.get())) {
    throw Error("'" + path + "' is not a gzip file", "compress it with gzip, or drop the .gz from its name");
  }
  for (;;) {
    const size_t size = text.size();
    text.resize(size + kBlock);
    const int got = gzread(file.get(), text.data() + size, kBlock);
    text.resize(size + (got > 0 ? static_cast<size_t>(got) : 0));
    // A file that ends early gives what it has and raises Z_BUF_ERROR.
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (got < 0 || code == Z_BUF_ERROR) {
      const bool early = code == Z_BUF_ERROR;
      throw Error("'" + path + "' is damaged: " + (early ? "the compressed data end too early" : "bad compressed data"),
                  "check it with `gzip -t`, and fetch or compress it again");
    }
    if (got == 0) return;
  }
}

}  // namespace taut::data
