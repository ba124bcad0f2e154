# frozen_string_literal: true

require_relative "supported_ruby"

module Heddle
  # Loads compiled code: that of Heddle and that of heddle-odbc.
  #
  # @api private
  module Native
    # @param gem [String]
    # @param feature [String] path in the gem's lib, without the version of Ruby, such as "heddle/heddle"
    # @param other [String] path of another build (with assertions, under a sanitizer, without probes of the kernel) in
    #   the folder HEDDLE_NATIVE_DIR
    # @param sources [String] path of the gem's extconf.rb; a gem with compiled code does not have it
    # @param needs [String, nil] what else compiling takes
    # @param library [String, nil] what the compiled code needs of the system
    # @return [void]
    # @raise [LoadError] that says what happened, and the command that mends it
    def self.load(gem, feature, other:, sources:, needs: nil, library: nil)
      refusal = SupportedRuby.refusal and raise LoadError, refusal
      folder = ENV["HEDDLE_NATIVE_DIR"].to_s
      return require(File.expand_path(other, folder)) unless folder.empty?

      wrong = missing(*features(feature)) or return
      raise LoadError, "#{gem}#{wrong}: #{mend(gem, sources, needs, library)}", cause: nil
    end

    # A checkout, and a gem with compiled code for several Rubies, have a folder a version: code compiled for one minor
    # version of Ruby crashes, or fails to load, in another. `gem install` compiles for one Ruby, and makes no folder
    # for its version.
    def self.features(feature)
      directory, name = File.split(feature)
      [File.join(directory, RUBY_VERSION[/\A\d+\.\d+/], name), feature]
    end
    private_class_method :features

    # @return [String, nil] what is wrong, if none of the features could be loaded
    def self.missing(feature, *others)
      require feature
      nil
    rescue LoadError => error
      # A library that exists but does not load (it is for another processor, C library or Ruby) raises an error with
      # another path, which must not be hidden.
      unless error.path == feature
        libraries = ENV["LD_LIBRARY_PATH"]
        return "'s compiled code does not load in Ruby #{RUBY_VERSION} on #{RUBY_PLATFORM}" \
          "#{" with LD_LIBRARY_PATH=#{libraries}" if libraries} (#{error.message.strip})"
      end

      require "rbconfig" # only here: programs without RubyGems have not loaded it
      unreadable = $LOAD_PATH.map { |folder| "#{folder}/#{feature}.#{RbConfig::CONFIG["DLEXT"]}" }
        .find { |path| File.exist?(path) } # which Ruby skips
      raise LoadError, "this user may not read #{unreadable}: chmod a+r mends it", cause: nil if unreadable

      others.empty? ? " is not compiled for Ruby #{RUBY_VERSION}" : missing(*others)
    end
    private_class_method :missing

    def self.mend(gem, sources, needs, library)
      unless File.exist?(sources) # RubyGems would go on to prefer this gem to the source gem
        return "#{"it needs #{library}; " if library}`gem uninstall -aIx #{gem} && gem install #{gem} --platform " \
          "ruby` compiles it for this system, as Bundler does after `bundle config set force_ruby_platform true`; " \
          "that takes a C compiler"
      end

      "#{"#{needs}, then " if needs}with this Ruby, run `bundle exec rake compile` in a checkout, " \
        "or `gem pristine #{gem}`"
    end
    private_class_method :mend
  end
end

Heddle::Native.load("heddle", "heddle/heddle", other: "heddle.so",
  sources: File.expand_path("../../../ext/heddle/extconf.rb", __dir__))
