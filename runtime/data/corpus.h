// The text that a run trains on, as one addressable string: documents in a fixed order, read by byte offset.
//
// data.path is a text file, a gzip-compressed one (.gz), or a folder, in which every regular file at any depth is a
// document, in byte order of its path; links, empty files and files that are not text are passed over. Text means UTF-8
// without NUL, judged by the first 64 KiB. Compressed files are unpacked into shared memory when the corpus is opened;
// plain files stay on disk and are read as they are asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/shared_memory.h"

namespace taut::data {

struct Document {
  std::string path;
  uint64_t bytes = 0;          // of text, after decompression
  int64_t memory_offset = -1;  // where the text lies in the corpus's memory; -1 = in the file
};

/// Thread safety: const functions may be called from several threads. Copying is cheap (documents are shared).
class Corpus {
 public:
  /// Lists and checks the documents. Throws taut::Error: missing, unreadable, empty, not text, damaged .gz.
  static Corpus open(const std::filesystem::path& path);

  /// A corpus that another process opened: its documents, and the memory that they point into (may be empty).
  Corpus(std::vector<Document> documents, std::shared_ptr<const SharedMemory> memory);

  const std::vector<Document>& documents() const { return *documents_; }
  /// Unpacked or preloaded text; null when every document is in its file.
  const std::shared_ptr<const SharedMemory>& memory() const { return memory_; }
  /// Of all documents; at least 1.
  uint64_t bytes() const { return ends_->back(); }

  /// The document that holds byte `offset` (< bytes()), and where in it. O(log documents).
  struct Position {
    size_t document;
    uint64_t offset;
  };
  Position locate(uint64_t offset) const;

  /// Appends bytes [offset, offset + count) of document `document` to `text`; stops at the document's end.
  /// Throws taut::Error if the file became shorter or unreadable since it was opened.
  void read(size_t document, uint64_t offset, uint64_t count, std::string& text) const;

 private:
  std::shared_ptr<const std::vector<Document>> documents_;
  std::shared_ptr<const std::vector<uint64_t>> ends_;  // end of each document in the concatenation
  std::shared_ptr<const SharedMemory> memory_;
};

}  // namespace taut::data
