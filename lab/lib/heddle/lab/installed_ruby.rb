# frozen_string_literal: true

require "open3"
require "rbconfig"
require_relative "bundled_gems"

module Heddle
  module Lab
    # A Ruby on this machine that runs measured processes.
    class InstalledRuby
      # Where ruby-install, chruby, rbenv, asdf and mise keep Rubies, and what stands before the version.
      FOLDERS = ["/opt/rubies/ruby-", "~/.rubies/ruby-", "~/.rbenv/versions/", "~/.asdf/installs/ruby/",
        "~/.local/share/mise/installs/ruby/"].freeze
      ASK = 'puts RUBY_DESCRIPTION, RbConfig::CONFIG["ruby_version"]'
      private_constant :FOLDERS, :ASK

      class << self
        # @return [InstalledRuby] the one that runs this
        def current = new(RbConfig.ruby)

        # @param name [String] a version ("3.4", "4.0.5"), of which the newest is taken, or the path of a Ruby
        # @return [InstalledRuby]
        # @raise [UsageError] when there is none
        def find(name)
          return new(name) if name.include?("/")
          return current if version?(RUBY_VERSION, name)

          path = managed(name) || in_path("ruby#{name}")
          raise UsageError, "there is no Ruby #{name} here; name its path, as in /opt/ruby/bin/ruby" unless path

          new(path)
        end

        private

        def managed(name)
          found = FOLDERS.flat_map do |start|
            whole = File.expand_path(start.sub(%r{[^/]*\z}, "")) + "/" + start[%r{[^/]*\z}]
            Dir.glob("#{whole}*/bin/ruby").filter_map do |path|
              version = path.delete_prefix(whole).delete_suffix("/bin/ruby")
              [Gem::Version.new(version), path] if version?(version, name) && Gem::Version.correct?(version)
            end
          end
          found.max_by(&:first)&.last
        end

        def version?(version, name) = version == name || version.start_with?("#{name}.")

        def in_path(command)
          ENV.fetch("PATH", "").split(File::PATH_SEPARATOR).map { |folder| File.join(folder, command) }
            .find { |path| File.executable?(path) }
        end
      end

      # @return [String]
      attr_reader :path
      # @return [String] its RUBY_DESCRIPTION
      attr_reader :description

      # @param path [String]
      # @raise [UsageError] when it does not run
      def initialize(path)
        @path = path
        @description, @abi = current? ? [RUBY_DESCRIPTION] : ask
      end

      # @return [String] of its files' names: "4.0.5"
      def version = description[/\Aruby (\S+?)(?:p\d+)? /, 1]

      # @return [Hash{String => String, nil}] the variables with which its processes find their gems: this bundle's, or
      #   those that the same Bundler's folder has for that Ruby; otherwise its own
      def environment
        return of_this_ruby if current?

        folder = BundledGems.folder_for(@abi)
        {"GEM_HOME" => folder, "GEM_PATH" => folder}
      end

      private

      def current? = @path == RbConfig.ruby

      def ask
        answer, status = Open3.capture2e({"RUBYOPT" => nil, "RUBYLIB" => nil}, @path, "-e", ASK)
        raise UsageError, "#{@path} is no Ruby that runs: #{answer.lines.first}" unless status.success?

        answer.lines(chomp: true)
      rescue SystemCallError => error
        raise UsageError, "#{@path} is no Ruby that runs: #{error.message}"
      end

      def of_this_ruby
        folder = BundledGems.folder
        folder ? {"GEM_HOME" => folder, "GEM_PATH" => folder} : {"GEM_PATH" => Gem.path.join(File::PATH_SEPARATOR)}
      end
    end
  end
end
