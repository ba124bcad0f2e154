# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

module Heddle
  module Lab
    # Objects of rows, made by C: what no client of a database can do without. Compiled when it is asked for, by the compiler
    # that gems are.
    module Objects
      SOURCE = File.expand_path("../../../ext/objects/objects.c", __dir__)
      private_constant :SOURCE

      class << self
        # Defines .rows.
        #
        # @return [void]
        # @raise [LoadError] when it cannot be compiled
        def load
          return if respond_to?(:rows)

          Dir.mktmpdir("heddle-objects") do |directory|
            library = "#{directory}/objects.#{RbConfig::CONFIG["DLEXT"]}"
            compile(library)
            require library
          end
        end

        private

        def compile(library)
          config = RbConfig::CONFIG
          output, status = Open3.capture2e(*config.values_at("CC", "CFLAGS", "CCDLFLAGS").join(" ").split, "-shared",
            "-I#{config["rubyhdrdir"]}", "-I#{config["rubyarchhdrdir"]}", "-o", library, SOURCE)
          raise LoadError, "the floor of objects cannot be compiled: #{output.lines.first&.strip}" unless status.success?
        rescue Errno::ENOENT => error
          raise LoadError, "the floor of objects cannot be compiled: #{error.message}"
        end
      end
    end
  end
end
