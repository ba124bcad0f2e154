# frozen_string_literal: true

# The results of extconf.rb for this Ruby: the compiler's -D options, from the Makefile that it wrote.
module BuildDefinitions
  def self.of_this_ruby
    makefile = Dir["tmp/*/heddle/#{RUBY_VERSION}/Makefile"].max_by { |path| File.mtime(path) }
    raise "no Makefile of this Ruby under tmp/: `rake compile` first" unless makefile

    File.read(makefile).scan(/^(?:DEFS|CPPFLAGS|INCFLAGS) *= *(.*)$/).join(" ").scan(/-D\S+/).uniq
  end
end
