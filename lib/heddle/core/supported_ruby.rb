# frozen_string_literal: true

module Heddle
  # Says why Heddle cannot run in a Ruby at all: when it is compiled (ext/heddle/extconf.rb), and when it is loaded.
  #
  # @api private
  module SupportedRuby
    # @return [String, nil] what is in the way, and what to do
    def self.refusal(engine = RUBY_ENGINE, platform = RUBY_PLATFORM)
      if engine != "ruby"
        "heddle is C code for the fibers and threads of CRuby, and cannot run in #{engine}: run this program with " \
          "CRuby (the Ruby of ruby-lang.org), or use the gem async"
      elsif platform.match?(/mswin|mingw|cygwin/)
        "heddle needs a POSIX system, and cannot run in a Ruby for Windows: run this program in WSL " \
          "(`wsl --install`), or use the gem async"
      end
    end
  end
end
