# frozen_string_literal: true

require "fileutils"
require "tmpdir"

module Heddle
  module Lab
    # A folder of gems, as RubyGems wants one, with links to those of this process's bundle and to no others. A process that
    # is given it loads the versions of the lock file, whatever else the machine has, without Bundler, whose set-up would be
    # part of its start.
    module BundledGems
      class << self
        # @return [String, nil] the folder, which goes with this process; nil without Bundler, when all gems may be loaded
        def folder
          @folder ||= make if defined?(Bundler::SharedHelpers) && Bundler::SharedHelpers.in_bundle?
        end

        private

        def make
          folder = Dir.mktmpdir("heddle-gems")
          owner = Process.pid
          at_exit { FileUtils.remove_entry(folder) if Process.pid == owner }
          Gem.loaded_specs.each_value { |spec| add(spec, folder) if installed?(spec) }
          folder
        end

        # Not one that Ruby brings, nor a checkout, such as Heddle's own, which has no place among the installed.
        def installed?(spec)
          !spec.default_gem? && File.file?(spec.loaded_from.to_s) && File.basename(File.dirname(spec.loaded_from)) == "specifications"
        end

        def add(spec, folder)
          link(spec.loaded_from, folder, "specifications")
          link(spec.full_gem_path, folder, "gems")
          extensions = spec.extension_dir
          link(extensions, folder, extensions.delete_prefix(spec.base_dir)[%r{\A/(.*)/[^/]+\z}, 1]) if File.directory?(extensions)
        end

        def link(file, *folders)
          place = File.join(*folders)
          FileUtils.mkdir_p(place)
          File.symlink(file, File.join(place, File.basename(file)))
        end
      end
    end
  end
end
