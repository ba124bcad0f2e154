# frozen_string_literal: true

require "fileutils"
require "open3"
require "rbconfig"
require "tmpdir"

module Heddle
  module Lab
    # The objects of rows, made by C code: the work that every client of a database has to do. The code is compiled when
    # it is first needed, by the compiler that builds gems.
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
          unless status.success?
            raise LoadError, "cannot compile the C code of the floor: #{output.lines.first&.strip}"
          end
        rescue Errno::ENOENT => error
          raise LoadError, "cannot compile the C code of the floor: #{error.message}"
        end
      end
    end
  end
end
