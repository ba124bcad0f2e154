# frozen_string_literal: true

require "fileutils"
require "tmpdir"

module Heddle
  module Lab
    # A folder of gems in RubyGems' layout, with links only to those of this process's bundle. A process that uses the
    # folder loads the versions of the lock file, whatever else the machine has. It does so without Bundler, whose
    # set-up would be part of its start.
    module BundledGems
      class << self
        # @param names [Array<String>, nil] only these gems, and those that they need; nil: all
        # @return [String, nil] the folder, which is deleted when this process ends; nil without Bundler, when all gems
        #   may be loaded
        def folder(names = nil)
          return unless Object.const_defined?("Bundler::SharedHelpers") && Bundler::SharedHelpers.in_bundle?

          @folders ||= {}
          @folders[names&.sort] ||= make(names ? closure(names) : Gem.loaded_specs.values)
        end

        # @param abi [String] of another Ruby, as in the names of folders: "3.4.0"
        # @return [String, nil] where this process's Bundler keeps the gems of that Ruby, if it does
        def folder_for(abi)
          return unless Object.const_defined?("Bundler::SharedHelpers") && Bundler::SharedHelpers.in_bundle?

          folder = File.join(File.dirname(Bundler.bundle_path), abi)
          folder if File.directory?(folder)
        end

        private

        def make(specs)
          folder = Dir.mktmpdir("heddle-gems")
          owner = Process.pid
          at_exit { FileUtils.remove_entry(folder) if Process.pid == owner }
          specs.each { |spec| add(spec, folder) if installed?(spec) }
          folder
        end

        def closure(names)
          found = {}
          names = names.dup
          while (name = names.shift)
            next if found.key?(name) || !(spec = Gem.loaded_specs[name])

            found[name] = spec
            names.concat(spec.runtime_dependencies.map(&:name))
          end
          found.values
        end

        # Excludes gems that Ruby brings, and checkouts such as Heddle's own, which are not installed as gems.
        def installed?(spec)
          !spec.default_gem? &&
            File.file?(spec.loaded_from.to_s) && File.basename(File.dirname(spec.loaded_from)) == "specifications"
        end

        def add(spec, folder)
          link(spec.loaded_from, folder, "specifications")
          link(spec.full_gem_path, folder, "gems")
          extensions = spec.extension_dir
          if File.directory?(extensions)
            link(extensions, folder, extensions.delete_prefix(spec.base_dir)[%r{\A/(.*)/[^/]+\z}, 1])
          end
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
