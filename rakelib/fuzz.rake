# frozen_string_literal: true

# Runs the parsers of ext/heddle/wire alone, under sanitizers, on mutated files of test/fuzz/corpus.
namespace :test do
  sanitizers = %w[-fsanitize=address,undefined -fno-sanitize-recover=undefined]
  headers = ["test/fuzz/fuzz.h", *FileList["ext/heddle/wire/*/*.h"]]
  # Apart from the programs: several have the same parsers, and ccache keeps only what is not linked in the same step.
  object_of = lambda do |source|
    object = source.pathmap("tmp/fuzz/%X.o")
    file object => [source, *headers] do
      mkdir_p File.dirname(object), verbose: false
      sh "gcc", "-std=gnu11", "-O1", "-g", "-MD", *sanitizers, "-Wall", "-Wextra", "-Iext/heddle", "-c", source,
        "-o", object, verbose: false
    end
    object
  end
  objects = FileList["test/fuzz/*_fuzz.c", "ext/heddle/wire/*/*.c"].to_h { |source| [source, object_of.call(source)] }
  fuzzers = FileList["test/fuzz/*_fuzz.c"].to_h do |source|
    name = source.pathmap("%n").delete_suffix("_fuzz")
    program = "tmp/fuzz/#{name}"
    parts = objects.values_at(source, *FileList["ext/heddle/wire/#{name[/[a-z]+/]}/*.c"])
    file(program => parts) { sh "gcc", *sanitizers, *parts, "-lm", "-o", program, verbose: false }
    [name, program]
  end

  # Reports name who allocated a block without who called that, whose search took time at each allocation. The only
  # strstr of the parsers searches a constant, which ASAN would measure twice at each call.
  options = {"ASAN_OPTIONS" => "malloc_context_size=1:intercept_strstr=0"}
  desc "Fuzz the parsers; INPUTS=10000000, SEED=1"
  task fuzz: fuzzers.values do
    fuzzers.each do |name, program|
      sh options, program, "test/fuzz/corpus/#{name}", ENV.fetch("INPUTS", "300000"),
        ENV.fetch("SEED", rand(1 << 30).to_s)
    end
  end
end
