# frozen_string_literal: true

# Runs the parsers of ext/heddle/wire alone, under sanitizers, on mutated files of test/fuzz/corpus.
namespace :test do
  fuzzers = FileList["test/fuzz/*_fuzz.c"].to_h do |source|
    name = source.pathmap("%n").delete_suffix("_fuzz")
    program = "tmp/fuzz/#{name}"
    parsers = FileList["ext/heddle/wire/wire_#{name}{,_*}.c"]
    file program => [source, "test/fuzz/fuzz.h", *parsers, *FileList["ext/heddle/wire/*.h"]] do
      mkdir_p "tmp/fuzz", verbose: false
      sh "gcc", "-std=gnu11", "-O1", "-g", "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined", "-Wall", "-Wextra",
        "-Iext/heddle", source, *parsers, "-lm", "-o", program, verbose: false
    end
    [name, program]
  end

  desc "Fuzz the parsers; INPUTS=10000000, SEED=1"
  task fuzz: fuzzers.values do
    fuzzers.each do |name, program|
      sh program, "test/fuzz/corpus/#{name}", ENV.fetch("INPUTS", "300000"), ENV.fetch("SEED", rand(1 << 30).to_s)
    end
  end
end
