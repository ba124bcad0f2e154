# frozen_string_literal: true

# The tests, the tasks of Rake and bin/test run the same on every machine. In containers without a locale Ruby would
# read files, outputs and programs of `-e` as US-ASCII; elsewhere servers would answer in the machine's language.
Encoding.default_external = Encoding::UTF_8
ENV["LC_ALL"] = RUBY_PLATFORM.include?("darwin") ? "en_US.UTF-8" : "C.UTF-8"
ENV.delete("LANGUAGE")
